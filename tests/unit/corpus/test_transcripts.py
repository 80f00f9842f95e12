"""Texts that are joined when a set is read: whose they are, which are gone, and which have no features."""

from __future__ import annotations

import builtins
import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lhotse import Recording

from asrtool.cli.features import features as features_command
from asrtool.corpus import transcripts as transcripts_module
from asrtool.corpus.index import Utterance, read_index
from asrtool.corpus.manifest import read_manifests, write_manifests
from asrtool.corpus.reader import FeatureReader
from asrtool.corpus.transcripts import TRANSCRIPTS, Transcripts, write_transcripts
from asrtool.errors import AsrtoolError

UTTERANCE = Utterance("a-1", "a", "A", 0.5, 1.25, "a-A", None, 0, 125)

names = st.text(st.characters(exclude_characters="\t\n", exclude_categories=["Cs"]), min_size=1)
texts = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))


def write(directory: Path, lines: dict[str, str]) -> Transcripts:
    write_transcripts(directory, lines.items())
    return Transcripts(directory)


def named(*ids: str) -> list[Utterance]:
    return [dataclasses.replace(UTTERANCE, id=id_) for id_ in ids]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.dictionaries(names, texts, min_size=1, max_size=6), st.integers(1, 2**62))
def test_each_utterance_has_the_text_of_its_id_whatever_the_hashes_are(
    tmp_path: Path, lines: dict[str, str], modulus: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transcripts_module, "hash", lambda name: builtins.hash(name) % (modulus % 3 + 1), raising=False)
        found = write(tmp_path, lines)
        assert found.texts(named(*lines)) == list(lines.values())
        assert found.texts(named("".join(lines) + ".")) == [None]


def test_features_know_no_text_and_read_it_from_the_manifests(corpus: Path) -> None:
    for name in ("train", "dev"):
        _, supervisions = read_manifests(corpus / "manifests" / name)
        said = {s.id: s.text for s in supervisions}
        reader = FeatureReader(corpus / "lilcom" / name, "none")
        assert {utterance.text for utterance in reader.index} == {None}
        assert reader.texts(reader.index) == [
            said[u.id.removeprefix("sp0.9-").removeprefix("sp1.1-")] for u in reader.index
        ]


@pytest.fixture
def dev(corpus: Path, tmp_path: Path) -> Path:
    """Features of dev."""
    shutil.copytree(corpus / "lilcom" / "dev", tmp_path / "dev")
    return tmp_path / "dev"


def test_an_utterance_that_is_gone_has_none(dev: Path) -> None:
    lines = (dev / TRANSCRIPTS).read_text().splitlines(keepends=True)
    (dev / TRANSCRIPTS).write_text("".join(lines[1:]))
    reader = FeatureReader(dev, "none")
    assert reader.texts(reader.index)[:2] == [None, "word number 1"]


@pytest.mark.parametrize("damage", ["missing", "empty", "no tab", "cut off"])
def test_missing_or_broken_texts_are_one_line(dev: Path, damage: str) -> None:
    path = dev / TRANSCRIPTS
    if damage == "missing":
        path.unlink()
    else:
        path.write_text({"empty": "", "no tab": "hello\n", "cut off": "a\tb"}[damage])
    reader = FeatureReader(dev, "none")
    with pytest.raises(AsrtoolError, match=r"transcripts\.tsv.*run the features stage") as raised:
        reader.texts(reader.index)
    assert "\n" not in str(raised.value)


def test_a_set_without_the_file_has_its_texts_in_its_index(dev: Path) -> None:
    (dev / TRANSCRIPTS).unlink()
    lines = (dev / "index.jsonl").read_text().replace('"shard"', '"text": "hello", "shard"')
    (dev / "index.jsonl").write_text(lines)
    reader = FeatureReader(dev, "none")
    assert set(reader.texts(reader.index)) == {"hello"}


def test_who_reads_a_text_that_was_not_joined_is_an_error(dev: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"utterance dev4-0: its text was not joined; ask `texts`"):
        _ = read_index(dev)[0].said


@pytest.mark.parametrize("line", [("a\tb", "x"), ("a\nb", "x"), ("a", "x\ny")])
def test_ids_and_texts_that_no_line_can_hold_are_refused(tmp_path: Path, line: tuple[str, str]) -> None:
    with pytest.raises(AsrtoolError, match="a tab or a line feed in its id, or a line feed in its text"):
        write_transcripts(tmp_path, [line])
    assert not list(tmp_path.iterdir())


def run_features(folder: Path) -> None:
    options = ["--set", "features.num_jobs=1", "--set", "features.speeds=[1.0]"]
    done = CliRunner().invoke(features_command, [str(folder / "manifests"), str(folder / "features"), *options])
    assert done.exit_code == 0, (done.output, done.exception)


def test_features_are_computed_again_for_new_segments_only(make_manifests: Callable[..., Path]) -> None:
    manifests = make_manifests(train=2)
    folder = manifests.parent
    run_features(folder)
    shard = folder / "features" / "train" / "feats.000000.lca"
    first = shard.stat().st_mtime_ns
    recordings, supervisions = (list(items) for items in read_manifests(manifests / "train"))

    def said(text: str, kept: slice) -> None:
        changed = [dataclasses.replace(s, text=text) for s in supervisions[kept]]
        write_manifests(manifests / "train", recordings, changed, [], 0.01, {})
        run_features(folder)
        reader = FeatureReader(folder / "features" / "train", "none")
        texts = reader.texts(reader.index)
        assert [one for one in texts if one is not None] == [text] * len(changed)

    said("other words", slice(None))
    said("fewer words", slice(1, None))
    assert shard.stat().st_mtime_ns == first
    supervisions[3] = dataclasses.replace(supervisions[3], duration=supervisions[3].duration - 0.5)
    said("a shorter one", slice(None))
    assert (second := shard.stat().st_mtime_ns) != first
    recordings[0] = Recording.from_file(
        shutil.copy(recordings[0].sources[0].source, folder / "moved.wav"), recordings[0].id
    )
    said("another file", slice(None))
    assert shard.stat().st_mtime_ns != second
