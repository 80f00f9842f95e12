"""Utterances decoded by other processes: the same features, the same errors, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from asrtool.data.batches import Lengths, load_batches, plan_epoch
from asrtool.data.storage.index import read_feature_settings, read_index, write_index
from asrtool.data.storage.reader import FeatureReader
from asrtool.data.storage.shard_offsets import Places
from asrtool.data.workers.loader import Decoders, _Decoder
from asrtool.decode.forward import open_features
from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import build_model
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice
from asrtool.settings.train import Shards as ShardsSettings
from asrtool.train.batches.shard_source import Shards
from asrtool.train.batches.source import SourceContext

NUMBERS = (1, 3)
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has memory without a name")


@contextmanager
def reading(directory: Path, num: int, cache_bytes: int = 0) -> Iterator[tuple[FeatureReader, Decoders]]:
    index = read_index(directory)
    decoders = Decoders(num, partial(FeatureReader, directory, "speaker", 0, index))
    try:
        yield FeatureReader(directory, "speaker", cache_bytes, index, decoders), decoders
    finally:
        decoders.close()


def read(reader: FeatureReader, *positions: int) -> list[np.ndarray]:
    return reader.read_several(positions)


def files_open() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(("storage", "num", "cache_bytes"), [("lilcom", 1, 0), ("lilcom", 3, 2**30), ("shar", 3, 0)])
def test_processes_decode_the_same_features_in_any_order(
    corpus: Path, storage: str, num: int, cache_bytes: int
) -> None:
    """Several at a time, also fewer than there are processes, and some twice; what is kept is not decoded again."""
    reference = FeatureReader(corpus / storage / "train", "speaker", 2**30)
    order = np.random.default_rng(0).permutation(len(reference.index)).tolist()
    with reading(corpus / storage / "train", num, cache_bytes) as (reader, _):
        for positions in (order[:1], order[:2], order[:30], order[1:]):
            found = read(reader, *positions)
            for i, feats_TF in zip(positions, found, strict=True):
                np.testing.assert_array_equal(feats_TF, reference.read(i))
                assert feats_TF.dtype == np.float32


@pytest.mark.parametrize("num", NUMBERS)
def test_an_epoch_of_batches_is_the_same_and_leaves_no_file_open(corpus: Path, num: int) -> None:
    directory = corpus / "lilcom" / "train"
    reference = FeatureReader(directory, "speaker")
    plan = list(plan_epoch(Lengths.of(reference.index), 2000, 1, 0))
    expected = list(load_batches(reference, plan))  # it keeps the files of its last shards open
    with reading(directory, 1) as (reader, _):
        read(reader, 0)  # the server that starts processes stays
    before = files_open()
    with reading(directory, num) as (reader, decoders):
        found = list(load_batches(reader, plan))
        assert len(decoders._decoders) == num
    for one, other in zip(found, expected, strict=True):
        assert one.indices == other.indices
        np.testing.assert_array_equal(one.feats_NTF, other.feats_NTF)
    assert files_open() == before


def test_what_a_batch_needs_is_dealt_to_all_and_what_is_kept_to_none(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dealt: list[list[int]] = []
    begin = _Decoder.begin

    def noted(self: _Decoder, positions: list[int], lengths: list[int], num_bins: int) -> None:
        dealt.append(list(positions))
        begin(self, positions, lengths, num_bins)

    monkeypatch.setattr(_Decoder, "begin", noted)
    with reading(corpus / "lilcom" / "train", 3, 2**30) as (reader, _):
        read(reader, *range(7))
        assert dealt == [[0, 3, 6], [1, 4], [2, 5]]
        read(reader, *range(8))
        assert dealt[3:] == [[7]]
        read(reader, *range(8))
        assert len(dealt) == 4


@pytest.mark.parametrize("num", NUMBERS)
def test_a_broken_shard_is_the_same_error_and_the_others_are_read(corpus: Path, tmp_path: Path, num: int) -> None:
    copy = tmp_path / "train"
    shutil.copytree(corpus / "lilcom" / "train", copy)
    path = copy / "cuts.000000.jsonl.gz"
    content = bytearray(path.read_bytes())
    begin = Places(copy)[1].cuts.begin
    content[begin + 100 : begin + 110] = bytes(10)
    path.write_bytes(content)
    here = FeatureReader(copy, "speaker")
    broken = next(i for i, utterance in enumerate(here.index) if utterance.shard == 1)
    with pytest.raises(AsrtoolError, match=r"shard 000001 cannot be read.*run the features stage again") as expected:
        here.read(broken)
    with reading(copy, num) as (reader, _):
        np.testing.assert_array_equal(read(reader, 0)[0], here.read(0))
        for _ in range(2):
            with pytest.raises(AsrtoolError) as found:
                read(reader, 0, broken, len(reader.index) - 1)
            assert str(found.value) == str(expected.value)
        np.testing.assert_array_equal(read(reader, len(reader.index) - 1)[0], here.read(len(reader.index) - 1))


def test_a_shard_other_than_the_index_says_is_the_same_error(corpus: Path, tmp_path: Path) -> None:
    copy = tmp_path / "train"
    shutil.copytree(corpus / "lilcom" / "train", copy)
    first, *others = read_index(copy)
    write_index(copy, [replace(first, num_frames=first.num_frames + 1), *others])
    with reading(copy, 1) as (reader, _), pytest.raises(AsrtoolError, match="shard 000000 is not the one"):
        read(reader, 0)


@pytest.mark.parametrize("num", NUMBERS)
def test_a_killed_process_is_one_line_and_no_hang(corpus: Path, num: int) -> None:
    with reading(corpus / "lilcom" / "train", num) as (reader, decoders):
        read(reader, *range(num))
        for decoder in decoders._decoders[-1:]:
            decoder.process.kill()
            decoder.process.join()
        message = r"a process that loads batches was killed.*want of memory; lower train\.loader_processes"
        with pytest.raises(AsrtoolError, match=message):
            read(reader, *range(len(reader.index)))
        # What others may have answered is gone with them; who reads again has new ones.
        reference = FeatureReader(corpus / "lilcom" / "train", "speaker")
        np.testing.assert_array_equal(read(reader, 3)[0], reference.read(3))


def test_a_process_that_is_killed_at_work_is_noticed(corpus: Path) -> None:
    """Stopped before it can answer, and then killed."""
    with reading(corpus / "lilcom" / "train", 1) as (reader, decoders):
        read(reader, 0)
        process = decoders._decoders[0].process
        assert process.pid
        os.kill(process.pid, signal.SIGSTOP)
        decoders._decoders[0].begin([1], [reader.index[1].num_frames], reader.num_bins)
        process.kill()
        with pytest.raises(AsrtoolError, match="a process that loads batches was killed"):
            decoders._decoders[0].result()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_to_all_processes_of_a_job_are_left_to_the_one_that_trains(corpus: Path, number: int) -> None:
    with reading(corpus / "lilcom" / "train", 1) as (reader, decoders):
        read(reader, 0)
        process = decoders._decoders[0].process
        assert process.pid
        os.kill(process.pid, number)
        last = len(reader.index) - 1
        assert len(read(reader, last)[0]) == reader.index[last].num_frames
        assert process.is_alive()


def test_processes_end_when_their_reader_is_no_longer_used(corpus: Path) -> None:
    directory = corpus / "lilcom" / "train"
    decoders = Decoders(1, partial(FeatureReader, directory, "speaker", 0, read_index(directory)))
    reader = FeatureReader(directory, "speaker", decoders=decoders)
    read(reader, 0)
    process = decoders._decoders[0].process
    del reader, decoders
    process.join(60)
    assert not process.is_alive()


LEARNER = """
import os, sys, time
from functools import partial
from pathlib import Path
from asrtool.data.workers.loader import Decoders
from asrtool.data.storage.index import read_index
from asrtool.data.storage.shard_offsets import Places
from asrtool.data.storage.reader import FeatureReader
if __name__ == "__main__":
    directory = Path(sys.argv[1])
    decoders = Decoders(2, partial(FeatureReader, directory, "speaker", 0, read_index(directory)))
    FeatureReader(directory, "speaker", decoders=decoders).read_several([0, 1])
    os.write(1, b"reads\\n")
    if sys.argv[2] == "waits":
        time.sleep(600)
    if sys.argv[2] == "fails":
        raise RuntimeError
"""


@pytest.mark.parametrize("how", ["waits", *(pytest.param(how, marks=pytest.mark.slow) for how in ("ends", "fails"))])
def test_processes_end_with_the_one_that_started_them(corpus: Path, tmp_path: Path, how: str) -> None:
    """Killed, at its end, and by an exception; none of which closes anything."""
    script = tmp_path / "learner.py"
    script.write_text(LEARNER)
    command = [sys.executable, str(script), str(corpus / "lilcom" / "train"), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as learner:
        assert learner.stdout is not None
        assert learner.stdout.readline() == "reads\n"
        if how == "waits":
            learner.kill()
        # The pipe ends when all who hold it have, the processes among them.
        ended = threading.Thread(target=learner.stdout.read, daemon=True)
        ended.start()
        ended.join(100)
        assert not ended.is_alive()
        assert learner.wait(100) == {"waits": -signal.SIGKILL, "ends": 0, "fails": 1}[how]


def test_training_and_decoding_compute_features_in_a_process_where_audio_is_stored(corpus: Path) -> None:
    """Without being asked to: torch has the threads of a model there."""
    directory = corpus / "flac" / "train"
    features = read_feature_settings(corpus / "flac")
    lstm = Choice.of("encoder", "lstm", num_layers=1, hidden_size=2)
    model = build_model(Model(encoder=lstm), features.num_features, 4)
    context = SourceContext(ShardsSettings(cache_gib=0), directory, features, lambda _: [2], model, 12000, 1)
    expected = FeatureReader(directory, "speaker")
    with closing(Shards(context)) as source:
        batch = source.read(next(source.plan(0, 0, {})))
        assert source.decoders
        assert len(source.decoders._decoders) == 1
    places = {utterance.id: i for i, utterance in enumerate(expected.index)}
    for name, feats_TF, length in zip(batch.ids, batch.inputs_NT, batch.input_lens_N, strict=True):
        np.testing.assert_array_equal(feats_TF[:length], expected.read(places[name]))
    info = {"features": {"cmvn": "speaker"}, "num_features": features.num_features}
    reader = open_features(directory, types.SimpleNamespace(info=info, path="final.pt"))  # type: ignore[arg-type]
    assert reader._decoders
    np.testing.assert_array_equal(reader.read_several([3])[0], expected.read(3))
    reader._decoders.close()
    assert open_features(corpus / "lilcom" / "train", types.SimpleNamespace(info=info))._decoders is None  # type: ignore[arg-type]
