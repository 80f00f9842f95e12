"""Processes that read shards beside the one that trains. They hand over the features in memory that both map.

What each does is a shard, not a batch: a batch has utterances of eight shards, so processes that made whole batches
would each decode nearly all shards.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import signal
from collections import deque
from collections.abc import Iterator
from multiprocessing import util
from multiprocessing.connection import Connection

import numpy as np
import torch

from asrtool.corpus.cmvn import Cmvn
from asrtool.corpus.processes import process_context
from asrtool.corpus.shard import ShardContent, read_normalised
from asrtool.errors import AsrtoolError

END_S = 10.0  # that a process may take for the shard that it is at


class Decoders:
    """`num` processes, which are started when the first shard is asked for.

    A process ends when its pipe does, so with the one that started it, however that ends. Signals are left to that one,
    which may have a checkpoint to save: a cluster signals all processes of a job.
    """

    def __init__(self, num: int, cmvn: str) -> None:
        """`cmvn` is that of the features, as a FeatureReader takes it. Raises AsrtoolError where this is not Linux."""
        if not hasattr(os, "memfd_create"):
            raise AsrtoolError(f"train.loader_processes is {num}: this needs Linux", "set it to 0")
        self._num = num
        self._cmvn = cmvn
        self._decoders: list[_Decoder] = []

    def begin(self, shard: ShardContent, num_bins: int) -> Loading:
        """Have `shard` read by the process that has least to do; AsrtoolError where that was killed."""
        if not self._decoders:
            self._end = util.Finalize(self, _end_all, (self._decoders,), exitpriority=1)  # before they are waited for
            self._decoders += [_Decoder(self._cmvn) for _ in range(self._num)]
        return min(self._decoders, key=lambda decoder: len(decoder.pending)).begin(shard, num_bins)

    def close(self) -> None:
        """End the processes."""
        if self._decoders:
            self._end()


class Loading:
    """A shard on its way."""

    def __init__(self, decoder: _Decoder, shard: ShardContent, num_bins: int) -> None:
        self._decoder = decoder
        self._ends = list(itertools.accumulate(shard.num_frames))
        self._shape = (self._ends[-1], num_bins)
        # A file without a name: the system frees it with the last process that maps it, and /dev/shm may be small.
        self._file: int | None = os.memfd_create("asrtool")
        self.path = f"/proc/{os.getpid()}/fd/{self._file}"
        self._found: np.ndarray | Exception | None = None

    def arrived(self, error: Exception | None) -> None:
        """The process has answered."""
        assert self._file is not None
        self._found = error or map_shared(self.path, self._shape)
        os.close(self._file)
        self._file = None

    def result(self) -> list[np.ndarray]:
        """Features of its utterances, (T, F) float32; waits for them.

        Raises AsrtoolError as read_normalised does, and where the process was killed.
        """
        while self._found is None:
            self._decoder.wait()
        if isinstance(self._found, Exception):
            raise self._found
        return np.split(self._found, self._ends[:-1])


class _Decoder:
    """A process, seen from the one that started it. It answers in the order in which it is asked."""

    def __init__(self, cmvn: str) -> None:
        context = process_context(__name__)
        self._pipe, other = context.Pipe()
        self.process = context.Process(target=_decode, args=(other, cmvn), name="decoder")
        self.process.start()
        other.close()  # or it would not be at its end when the process is
        self.pending: deque[Loading] = deque()

    def begin(self, shard: ShardContent, num_bins: int) -> Loading:
        loading = Loading(self, shard, num_bins)
        self.pending.append(loading)
        with self._killed():
            self._pipe.send((loading.path, shard))
        return loading

    def wait(self) -> None:
        """For its next answer."""
        with self._killed():
            error = self._pipe.recv()
        self.pending.popleft().arrived(error)

    def end(self) -> None:
        """Have the process end, whatever it waits for."""
        self._pipe.close()
        self.process.join(END_S)
        self.process.kill()
        self.process.join()

    @contextlib.contextmanager
    def _killed(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError) as error:
            raise AsrtoolError(
                "a process that loads batches was killed, perhaps for want of memory",
                "lower train.loader_processes and run the same command again",
            ) from error


def _end_all(decoders: list[_Decoder]) -> None:
    while decoders:
        decoders.pop().end()


def _decode(pipe: Connection, cmvn: str) -> None:
    """Be a process: read shards into the files asked for, and answer with the error, if there is one."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    cmvn_of = functools.lru_cache(functools.partial(Cmvn, cmvn=cmvn))
    with contextlib.suppress(EOFError, OSError):  # the other end is closed, or its process was killed
        while True:
            path, shard = pipe.recv()
            answer = None
            try:
                feats = read_normalised(shard, cmvn_of(shard.directory))
                np.concatenate(feats, out=map_shared(path, (sum(shard.num_frames), feats[0].shape[1])))
            except Exception as error:  # belongs to the one that asked
                answer = error
            pipe.send(answer)


def map_shared(path: str, shape: tuple[int, int]) -> np.ndarray:
    """What is in the file `path`, float32; zeros behind its end. Unlike one of NumPy or mmap it holds no open file."""
    return torch.from_file(path, shared=True, size=shape[0] * shape[1], dtype=torch.float32).numpy().reshape(shape)
