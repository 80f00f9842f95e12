"""Columns of utterances in files that learners map: content, size, and who builds them when."""

from __future__ import annotations

import dataclasses
import shutil
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_task import NUM_BINS, NUM_TOKENS
from trainings import source_context

from asrtool.data.features.cmvn import Moments, write_cmvn
from asrtool.data.storage.index import Utterance, read_index, write_index
from asrtool.data.storage.index_columns import write_columns
from asrtool.data.storage.transcripts import number_words, number_words_again, write_transcripts
from asrtool.errors import AsrtoolError
from asrtool.models.objectives.ctc import Ctc
from asrtool.settings.models import Ctc as CtcSettings
from asrtool.train.batches import utterance_columns as columns_module
from asrtool.train.batches.plan import UNLIMITED
from asrtool.train.batches.shard_source import Shards
from asrtool.train.batches.source import Epoch, SourceContext
from asrtool.train.batches.text_encoding import Encoder, find_lines
from asrtool.train.batches.utterance_columns import ARRAYS, Columns, open_columns
from asrtool.train.inputs import ColumnsFolder

NUM_LARGE = 20_000
MAX_BYTES = 100  # an utterance, shared
MAX_OWN_BYTES = 0.3 * 2**30 / 7e6  # an utterance, of each learner


@pytest.fixture
def folder(tmp_path: Path) -> ColumnsFolder:
    sha256 = {"features/train/index.jsonl": "a", "features/dev/index.jsonl": "b", "tokenizer/tokenizer.model": "c"}
    return ColumnsFolder(tmp_path / "index", sha256, {"model": {"encoder": "lstm"}, "code": "d"})


@pytest.fixture
def open_toy(toy: Path) -> Callable[..., Columns]:
    context = source_context(toy, row_frames=9)
    return lambda folder: open_columns(context.directory, context.encode, context.model, folder)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sets that columns were built of."""
    names: list[str] = []
    build = columns_module.build_columns

    def counting(directory: Path, *args: object) -> Columns:
        names.append(directory.name)
        return build(directory, *args)

    monkeypatch.setattr(columns_module, "build_columns", counting)
    return names


def assert_same(one: Columns, other: Columns) -> None:
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    assert one.about == other.about


def test_learners_map_the_files_that_the_first_of_them_has_built(open_toy, folder, built) -> None:
    first, second = open_toy(folder), open_toy(folder)
    assert built == ["train"]
    assert_same(first, second)
    assert_same(first, open_toy(None))
    for columns in (first, second):
        for name in ARRAYS:
            assert isinstance(getattr(columns, name).base, np.memmap), name
            assert not getattr(columns, name).flags.writeable


def test_two_learners_that_come_at_once_build_once(open_toy, folder, monkeypatch) -> None:
    build, came, both = columns_module.build_columns, [], threading.Event()

    def waiting(*args: object) -> Columns:
        came.append(args)
        if len(came) == 2:
            both.set()
        both.wait(0.5)
        return build(*args)

    monkeypatch.setattr(columns_module, "build_columns", waiting)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(open_toy, 2 * [folder]))
    assert len(came) == 1


@pytest.mark.parametrize("changed", ["index", "tokenizer", "model", "code"])
def test_columns_of_other_data_are_built_again(open_toy, folder: ColumnsFolder, built: list[str], changed: str) -> None:
    open_toy(folder)
    names = {"index": "features/train/index.jsonl", "tokenizer": "tokenizer/tokenizer.model"}
    if changed in names:
        other = dataclasses.replace(folder, sha256={**folder.sha256, names[changed]: "other"})
    else:
        other = dataclasses.replace(folder, others={**folder.others, changed: "other"})
    open_toy(other)
    open_toy(other)
    assert built == ["train", "train"]


@pytest.mark.parametrize("name", ["about.json", "tokens.npy"])
def test_files_that_are_cut_off_are_built_again(open_toy, folder: ColumnsFolder, built: list[str], name: str) -> None:
    whole = open_toy(folder)
    path = folder.path / "train" / name
    content = path.read_bytes()
    path.write_bytes(content[:90])  # the mapped file itself loses its pages: nothing of `whole` is read below
    del whole
    assert_same(open_toy(folder), open_toy(None))
    assert built == ["train", "train", "train"]


def large() -> Iterator[Utterance]:
    """No text twice, as without copies at other speeds; 400 utterances a shard."""
    random = np.random.default_rng(1)
    for i, num_frames in enumerate(random.integers(100, 1000, NUM_LARGE).tolist()):
        yield Utterance(f"fe_03_{i}", "r", "A", 0.0, num_frames / 100, "s", str(i), i // 400, num_frames)


def test_a_large_set_takes_few_bytes_an_utterance(toy: Path, folder: ColumnsFolder, tmp_path: Path) -> None:
    """Files have 30 tokens an utterance; planning an epoch takes little memory of its own."""
    directory = tmp_path / "train"
    directory.mkdir()
    write_index(directory, large())
    write_cmvn(directory, {}, Moments.of(np.ones((1, NUM_BINS), dtype=np.float32)))
    encode = lambda text: [int(text) % 1000] * 30  # noqa: E731
    context = source_context(toy, directory=directory, encode=encode, max_frames=12_000, columns=folder)
    Shards(context)
    num_bytes = sum(path.stat().st_size for path in (folder.path / "train").iterdir()) / NUM_LARGE
    tracemalloc.start()
    try:
        source = Shards(context)
        epoch = Epoch(source, 0)
        epoch.extend(UNLIMITED)
        own_bytes = tracemalloc.get_traced_memory()[0] / NUM_LARGE
    finally:
        tracemalloc.stop()
    assert num_bytes <= MAX_BYTES
    assert own_bytes <= MAX_OWN_BYTES


@pytest.mark.parametrize(("largest", "kind"), [(2**16 - 1, np.uint16), (2**16, np.uint32)])
def test_tokens_are_of_16_bits_where_these_are_enough(largest: int, kind: type) -> None:
    targets = Encoder(number_words([("u", "text")]), lambda _: [0, largest]).targets(np.array([0]))
    assert (targets.ends.tolist(), targets.values.tolist(), targets.values.dtype) == ([0, 2], [0, largest], kind)


def build(context: SourceContext, **more: bool) -> Columns:
    return columns_module.build_columns(context.directory, context.encode, context.model, **more)


def without_columns(toy: Path, tmp_path: Path) -> Path:
    """The training set of the toy with a file of texts, which it has in its index, and without columns."""
    directory = tmp_path / "features" / "train"
    shutil.copytree(toy / "features" / "train", directory)
    listed = read_index(directory)
    write_transcripts(directory, [*reversed([(one.id, one.transcript) for one in listed]), ("unsaid", "\u20ac")])
    copies = [
        dataclasses.replace(one, id=f"sp0.9-{one.id}", speaker=f"sp0.9-{one.speaker}", shard=one.shard + 3)
        for one in listed[3:]
    ]
    write_index(directory, [dataclasses.replace(one, text=None) for one in [*listed, *copies]])
    return directory


def test_columns_of_the_features_stage_and_of_lines_that_are_parsed_give_the_same(toy: Path, tmp_path: Path) -> None:
    """Each utterance has the tokens of its text, a copy at another speed those of the original."""
    directory = without_columns(toy, tmp_path)
    context = source_context(toy, directory=directory)
    shutil.rmtree(directory / "words")
    parsed = build(context)
    write_columns(directory)
    number_words_again(directory)
    mapped = build(context)
    assert_same(parsed, mapped)
    listed, said = read_index(directory), {one.id: one.transcript for one in read_index(toy / "features" / "train")}
    for row, position in enumerate(mapped.positions.tolist()):
        assert mapped.targets(row).tolist() == context.encode(said[listed[position].id.removeprefix("sp0.9-")])
    assert len(mapped.positions) > 40


def test_an_utterance_without_text_is_left_out_and_one_without_tokens_is_named(toy, tmp_path, caplog) -> None:
    directory = without_columns(toy, tmp_path)
    context = source_context(toy, directory=directory)
    said = [(one.id, one.transcript) for one in read_index(toy / "features" / "train")]
    write_transcripts(directory, said[1:])
    columns = build(context)
    assert columns.about["num_without_text"] == 1
    assert 0 not in columns.positions
    write_transcripts(directory, [(name, text + " \u20ac" * (i in (5, 9))) for i, (name, text) in enumerate(said)])
    with pytest.raises(AsrtoolError, match=r"utterance train-5: '.* \u20ac': '\u20ac' outside the tokenizer"):
        build(context)
    of_dev = build(context, needs_all=False)
    assert "no loss of 4 of 45 utterances, which have characters that training has not; the first is" in caplog.text
    assert (of_dev.about["num_not_encoded"], of_dev.about["num_without_text"]) == (4, 0)
    write_transcripts(directory, said)
    every = build(context).positions
    ids = [one.id.removeprefix("sp0.9-") for one in read_index(directory)]
    assert of_dev.positions.tolist() == [i for i in every if ids[i] not in (said[5][0], said[9][0])]
    write_transcripts(directory, [(name, "\u20ac") for name, _ in said])
    with pytest.raises(AsrtoolError, match="outside the tokenizer"):
        build(context, needs_all=False)


class Odd(Ctc):
    """An own objective that is asked of each utterance."""

    def fits(self, num_rows: int, targets: Sequence[int]) -> str:
        return "even" if num_rows % 2 == 0 else super().fits(num_rows, targets)

    def normaliser(self, num_rows: int, targets: Sequence[int]) -> int:
        return num_rows * len(targets)


@pytest.mark.parametrize("objective", [Ctc, Odd])
def test_columns_say_of_each_utterance_that_fits_what_the_index_and_the_objective_say(toy: Path, objective) -> None:
    context = source_context(toy, row_frames=9)
    model = context.model
    model.objective = objective(CtcSettings(), 4, NUM_TOKENS)
    columns, expected, dropped = build(context), [], []
    for i, utterance in enumerate(read_index(toy / "features" / "train")):
        num_rows, targets = -(-utterance.num_frames // 9), context.encode(utterance.text)
        if reason := model.objective.fits(num_rows, targets):
            dropped.append(f"{utterance.id} ({reason})")
        else:
            expected.append((i, utterance.num_frames, model.objective.normaliser(num_rows, targets), targets))
    assert len(dropped) > 5
    rows = zip(columns.positions, columns.num_frames, columns.normalisers, strict=True)
    assert [(*map(int, row), columns.targets(i).tolist()) for i, row in enumerate(rows)] == expected
    assert (columns.about["num_dropped"], columns.about["dropped"]) == (len(dropped), dropped[:5])
    assert columns.about["num_samples"] == len(expected) > 0
    assert columns.about["num_frames"] == sum(num_frames for _, num_frames, _, _ in expected)


@given(st.lists(st.integers(0, 6), max_size=9), st.lists(st.integers(0, 9), max_size=30))
def test_the_line_of_an_utterance_is_one_of_its_key(lines: list[int], wanted: list[int]) -> None:
    known = np.array([9, *lines], np.uint64)
    for key, line in zip(wanted, find_lines(np.array(wanted, np.uint64), known).tolist(), strict=True):
        assert known[line] == key if key in known else line == -1
