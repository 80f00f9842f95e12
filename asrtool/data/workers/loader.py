"""Processes that decode utterances for a learner, into shared memory.

The utterances of a batch are divided among them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import util
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np
import torch

from asrtool.data.workers.processes import process_context
from asrtool.errors import AsrtoolError

NOTHING = np.empty((0, 0), np.float32)
PRELOADED = "asrtool.data.storage.reader"  # what takes long to import
END_S = 10.0  # that a process may take for the utterances that it is at


class Reader(Protocol):
    """Interface of a reader in a process."""

    def read(self, item: Any, /) -> np.ndarray:
        """Return features (T, F) of an utterance, float32, by its `item`."""


class Decoders:
    """Loader processes for one set, started with the first utterances.

    A process ends with its pipe, so with the learner, however that ends. It ignores signals: a cluster signals all
    processes of a job, and the learner may have a checkpoint to save.
    """

    def __init__(self, num: int, open_reader: Callable[[], Reader]) -> None:
        """Each process calls `open_reader`. Raises AsrtoolError where this is not Linux."""
        if not hasattr(os, "memfd_create"):
            what = "processes that load batches (train.loader_processes, [augment]) need Linux"
            raise AsrtoolError(what, "set train.loader_processes to 0 and leave out [augment]")
        self._num = num
        self._open_reader = open_reader
        self._decoders: list[_Decoder] = []

    def read(self, items: Sequence[Any], lengths: Sequence[int], num_bins: int) -> list[np.ndarray]:
        """Return the features of utterances `items` of `lengths` frames.

        Raises AsrtoolError as the reader, and if a process was killed.
        """
        if not self._decoders:
            self._end = util.Finalize(self, _end_all, (self._decoders,), exitpriority=1)  # before they are waited for
            self._decoders += [_Decoder(self._open_reader) for _ in range(self._num)]
        busy = self._decoders[: len(items)]
        try:
            for k, decoder in enumerate(busy):
                decoder.begin(items[k :: len(busy)], lengths[k :: len(busy)], num_bins)
            answers = [decoder.result() for decoder in busy]  # all are taken before the error of one is raised
        except AsrtoolError:  # one was killed: what others answer yet belongs to this call
            self.close()
            raise
        feats: list[np.ndarray] = [NOTHING] * len(items)
        for k, answer in enumerate(answers):
            if isinstance(answer, Exception):
                raise answer
            feats[k :: len(busy)] = answer
        return feats

    def close(self) -> None:
        """End the processes."""
        if self._decoders:
            self._end()


class _Decoder:
    """A process, seen from the one that started it."""

    def __init__(self, open_reader: Callable[[], Reader]) -> None:
        context = process_context(PRELOADED)
        self._pipe, other = context.Pipe()
        self.process = context.Process(target=_decode, args=(other, open_reader), name="decoder")
        self.process.start()
        other.close()  # or it would not be at its end when the process is

    def begin(self, items: Sequence[Any], lengths: Sequence[int], num_bins: int) -> None:
        """Start to decode `items` of `lengths` frames; `result` follows."""
        # A file without a name: the system frees it with the last process that maps it, and /dev/shm may be small.
        self._file = os.memfd_create("asrtool")
        self._path = f"/proc/{os.getpid()}/fd/{self._file}"
        self._ends = list(itertools.accumulate(lengths))
        self._shape = (self._ends[-1], num_bins)
        with self._killed():
            self._pipe.send((self._path, self._shape, items))

    def result(self) -> list[np.ndarray] | Exception:
        """Return features, each (T, F) float32, or the error.

        Raises AsrtoolError if the process was killed.
        """
        try:
            with self._killed():
                error: Exception | None = self._pipe.recv()
            return error or np.split(map_shared(self._path, self._shape), self._ends[:-1])
        finally:
            os.close(self._file)

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


def _decode(pipe: Connection, open_reader: Callable[[], Reader]) -> None:
    """Run a process: decode utterances into files, answer with an error if any."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    reader = None
    with contextlib.suppress(EOFError, OSError):  # the other end is closed, or its process was killed
        while True:
            path, shape, items = pipe.recv()
            answer = None
            try:
                reader = reader or open_reader()
                np.concatenate([reader.read(item) for item in items], out=map_shared(path, shape))
            except Exception as error:  # belongs to the one that asked
                answer = error
            pipe.send(answer)


def map_shared(path: str, shape: tuple[int, int]) -> np.ndarray:
    """Map the file `path` as float32, zeros after its end, without an open file."""
    return torch.from_file(path, shared=True, size=shape[0] * shape[1], dtype=torch.float32).numpy().reshape(shape)
