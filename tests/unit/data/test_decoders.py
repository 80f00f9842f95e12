"""Utterances decoded by other processes: the same features, the same errors, and nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from asrtool.data.storage.index import read_feature_settings, read_index
from asrtool.data.storage.reader import FeatureReader
from asrtool.data.storage.shard_offsets import ShardTable
from asrtool.data.workers.loader import Decoders
from asrtool.decode.forward import open_features
from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import build_model
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice
from asrtool.settings.train import Shards as ShardsSettings
from asrtool.train.batches.shard_source import Shards
from asrtool.train.batches.source import SourceContext

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has memory without a name")


def processes() -> list[multiprocessing.Process]:
    return sorted((one for one in multiprocessing.active_children() if one.name == "decoder"), key=lambda one: one.pid)


@contextmanager
def reading(directory: Path, num: int, cache_bytes: int = 0) -> Iterator[FeatureReader]:
    index = read_index(directory)
    decoders = Decoders(num, partial(FeatureReader, directory, "speaker", 0, index))
    try:
        yield FeatureReader(directory, "speaker", cache_bytes, index, decoders)
    finally:
        decoders.close()
        assert not processes()


def test_a_file_has_its_size_before_processes_map_it() -> None:
    """Otherwise the one that maps it last writes a zero over the first byte."""
    sizes = []

    class Pipe:
        def send(self, message: tuple) -> None:
            (path, _), _ = message
            sizes.append(os.stat(path).st_size)

        def recv(self) -> None:
            return None

    decoders = Decoders(1, lambda: None)
    decoders._processes = [(None, Pipe())]
    (feats_TF,) = decoders.read([0], [3], 2)
    assert (sizes, feats_TF.shape) == ([24], (3, 2))


@pytest.mark.parametrize(("storage", "num", "cache_bytes"), [("lilcom", 1, 0), ("lilcom", 3, 2**30), ("shar", 3, 0)])
def test_processes_decode_the_same_features_in_any_order_and_leave_no_file_open(
    corpus: Path, storage: str, num: int, cache_bytes: int
) -> None:
    """Several at a time, also fewer than there are processes, and some twice; what is kept is not decoded again."""
    directory = corpus / storage / "train"
    reference = FeatureReader(directory, "speaker", 2**30)
    order = np.random.default_rng(0).permutation(len(reference.index)).tolist()
    expected = reference.read_several(order)  # it keeps the files of its last shards open
    with reading(directory, 1) as reader:
        reader.read_several([0])  # the server that starts processes stays
    before = os.listdir("/proc/self/fd")
    with reading(directory, num, cache_bytes) as reader:
        for positions in (order[:1], order[:2], order[:30], order[1:]):
            for i, feats_TF in zip(positions, reader.read_several(positions), strict=True):
                np.testing.assert_array_equal(feats_TF, expected[order.index(i)])
                assert feats_TF.dtype == np.float32
        assert len(processes()) == num
    assert len(os.listdir("/proc/self/fd")) == len(before)


class Who:
    """Reader of the number of its own process, in two frames."""

    def read(self, item: int) -> np.ndarray:
        return np.full((2, 1), os.getpid(), np.float32)


def test_what_a_batch_needs_is_dealt_to_all() -> None:
    decoders = Decoders(3, Who)
    pids = [int(feats_TF[1, 0]) for feats_TF in decoders.read(range(7), [2] * 7, 1)]
    assert sorted(pids[:3]) == [one.pid for one in processes()]
    assert pids == (pids[:3] * 3)[:7]
    assert decoders.read([], [], 1) == []
    decoders.close()


def test_a_broken_shard_is_the_same_error_and_the_others_are_read(corpus: Path, tmp_path: Path) -> None:
    copy = tmp_path / "train"
    shutil.copytree(corpus / "lilcom" / "train", copy)
    path = copy / "cuts.000000.jsonl.gz"
    content = bytearray(path.read_bytes())
    begin = ShardTable(copy)[1].cuts.begin
    content[begin + 100 : begin + 110] = bytes(10)
    path.write_bytes(content)
    here = FeatureReader(copy, "speaker")
    broken, last = next(i for i, utterance in enumerate(here.index) if utterance.shard == 1), len(here.index) - 1
    with pytest.raises(AsrtoolError, match=r"shard 000001 cannot be read.*run the features stage again") as expected:
        here.read(broken)
    with reading(copy, 3) as reader:
        for _ in range(2):
            with pytest.raises(AsrtoolError) as found:
                reader.read_several([0, broken, last])
            assert str(found.value) == str(expected.value)
        np.testing.assert_array_equal(reader.read_several([last])[0], here.read(last))


@pytest.mark.parametrize("is_at_work", [False, True])
def test_a_killed_process_is_one_line_and_no_hang(corpus: Path, is_at_work: bool) -> None:
    with reading(corpus / "lilcom" / "train", 2) as reader:
        reader.read_several([0, 1])
        process = processes()[-1]
        if is_at_work:  # stopped before it can answer, and then killed
            os.kill(process.pid, signal.SIGSTOP)
            threading.Timer(0.5, process.kill).start()
        else:
            process.kill()
            process.join()
        message = r"a process that loads batches was killed.*want of memory; lower train\.loader_processes"
        with pytest.raises(AsrtoolError, match=message):
            reader.read_several(range(len(reader.index)))
        # Answers of the others are gone with them; the next read starts new processes.
        reference = FeatureReader(corpus / "lilcom" / "train", "speaker")
        np.testing.assert_array_equal(reader.read_several([3])[0], reference.read(3))


def test_signals_to_all_processes_of_a_job_are_left_to_the_one_that_trains(corpus: Path) -> None:
    with reading(corpus / "lilcom" / "train", 1) as reader:
        reader.read_several([0])
        (process,) = processes()
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(process.pid, number)
        last = len(reader.index) - 1
        assert len(reader.read_several([last])[0]) == reader.index[last].num_frames
        assert process.is_alive()


LEARNER = """
import os, sys, time
from functools import partial
from pathlib import Path
from asrtool.data.workers.loader import Decoders
from asrtool.data.storage.index import read_index
from asrtool.data.storage.shard_offsets import ShardTable
from asrtool.data.storage.reader import FeatureReader
if __name__ == "__main__":
    directory = Path(sys.argv[1])
    decoders = Decoders(2, partial(FeatureReader, directory, "speaker", 0, read_index(directory)))
    FeatureReader(directory, "speaker", decoders=decoders).read_several([0, 1])
    os.write(1, b"reads\\n")
    time.sleep(600)
"""


@pytest.mark.slow
def test_processes_end_with_the_one_that_started_them(corpus: Path, tmp_path: Path) -> None:
    """The process is killed, so nothing is closed."""
    script = tmp_path / "learner.py"
    script.write_text(LEARNER)
    command = [sys.executable, str(script), str(corpus / "lilcom" / "train")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as learner:
        assert learner.stdout is not None
        assert learner.stdout.readline() == "reads\n"
        learner.kill()
        # The pipe ends when all who hold it have, the processes among them.
        ended = threading.Thread(target=learner.stdout.read, daemon=True)
        ended.start()
        ended.join(100)
        assert not ended.is_alive()
        assert learner.wait(100) == -signal.SIGKILL


def test_training_and_decoding_compute_features_in_a_process_where_audio_is_stored(corpus: Path) -> None:
    """No setting asks for it: torch has the threads of a model there."""
    directory = corpus / "flac" / "train"
    features = read_feature_settings(corpus / "flac")
    lstm = Choice.of("encoder", "lstm", num_layers=1, hidden_size=2)
    model = build_model(Model(encoder=lstm), features.num_features, 4)
    context = SourceContext(ShardsSettings(cache_gib=0), directory, features, lambda _: [2], model, 12000, 1)
    expected = FeatureReader(directory, "speaker")
    with closing(Shards(context)) as source:
        batch = source.read(next(source.plan(0, 0, {})))
        assert len(processes()) == 1
    places = {utterance.id: i for i, utterance in enumerate(expected.index)}
    for name, feats_TF, length in zip(batch.ids, batch.inputs_NT, batch.input_lens_N, strict=True):
        np.testing.assert_array_equal(feats_TF[:length], expected.read(places[name]))
    info = {"features": {"cmvn": "speaker"}, "num_features": features.num_features}
    reader = open_features(directory, types.SimpleNamespace(info=info, path="final.pt"))  # type: ignore[arg-type]
    np.testing.assert_array_equal(reader.read_several([3])[0], expected.read(3))
    assert len(processes()) == 1
    del reader
    stored = open_features(corpus / "lilcom" / "train", types.SimpleNamespace(info=info))  # type: ignore[arg-type]
    stored.read_several([3])
    assert not processes()
