"""Processes that decode utterances for a learner, into shared memory.

The utterances of a batch are divided among them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing import util
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from asrtool.data.workers.processes import process_context
from asrtool.errors import AsrtoolError
from asrtool.files import open_memory_file

PRELOADED = "asrtool.data.storage.reader"  # takes long to import
END_S = 10.0  # timeout of a process for its current utterances


class Decoders:
    """Loader processes for one set, started with the first utterances.

    A process ends with its pipe, so with the learner, however that ends. It ignores signals: a cluster signals all
    processes of a job, and the learner may have a checkpoint to save.
    """

    def __init__(self, num: int, open_reader: Callable[[], Any]) -> None:
        """Take `open_reader`, called in each process; its `read` returns (T, F).

        Raises AsrtoolError if this is not Linux.
        """
        if not hasattr(os, "memfd_create"):
            what = "processes that load batches (train.loader_processes, [augment]) need Linux"
            raise AsrtoolError(what, "set train.loader_processes to 0 and leave out [augment]")
        self._num = num
        self._open_reader = open_reader
        self._processes: list[tuple[Any, Connection]] = []

    def read(self, items: Sequence[Any], lengths: Sequence[int], num_bins: int) -> list[np.ndarray]:
        """Return the features of utterances `items` of `lengths` frames.

        Raises AsrtoolError as the reader, and if a process was killed.
        """
        if not items:
            return []
        if not self._processes:
            # Before the interpreter waits for them at its end.
            self._end = util.Finalize(self, _end_all, (self._processes,), exitpriority=1)
            self._processes += [self._start() for _ in range(self._num)]
        ends = list(itertools.accumulate(lengths))
        places = list(zip(items, [0, *ends], ends, strict=False))
        pipes = [pipe for _, pipe in self._processes[: len(items)]]
        # A file without a name: the system frees it with the last process that maps it, and /dev/shm may be small.
        file = open_memory_file(ends[-1] * num_bins * np.dtype(np.float32).itemsize)
        try:
            shared = f"/proc/{os.getpid()}/fd/{file}", (ends[-1], num_bins)
            for k, pipe in enumerate(pipes):
                pipe.send((shared, places[k :: len(pipes)]))
            errors = [pipe.recv() for pipe in pipes]  # all are taken before the error of one is raised
            feats_TF = map_shared(*shared)
        except (EOFError, OSError) as error:
            self.close()  # later results belong to this call
            raise AsrtoolError(
                "a process that loads batches was killed, perhaps for want of memory",
                "lower train.loader_processes and run the same command again",
            ) from error
        finally:
            os.close(file)
        for reader_error in filter(None, errors):
            raise reader_error
        return np.split(feats_TF, ends[:-1])

    def close(self) -> None:
        """End the processes."""
        if self._processes:
            self._end()

    def _start(self) -> tuple[Any, Connection]:
        context = process_context(PRELOADED)
        pipe, other = context.Pipe()
        process = context.Process(target=_decode, args=(other, self._open_reader), name="decoder")
        process.start()
        other.close()  # or it would not be at its end when the process is
        return process, pipe


def _end_all(processes: list[tuple[Any, Connection]]) -> None:
    """End processes, even if they wait."""
    while processes:
        process, pipe = processes.pop()
        pipe.close()
        process.join(END_S)
        process.kill()
        process.join()


def _decode(pipe: Connection, open_reader: Callable[[], Any]) -> None:
    """Run a process: decode utterances into files, answer with an error if any."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    reader = None
    with contextlib.suppress(EOFError, OSError):  # the other end is closed, or its process was killed
        while True:
            shared, places = pipe.recv()
            answer = None
            try:
                reader = reader or open_reader()
                feats_TF = map_shared(*shared)
                for item, begin, end in places:
                    feats_TF[begin:end] = reader.read(item)
            except Exception as error:  # raised in the consuming process
                answer = error
            pipe.send(answer)


def map_shared(path: str, shape: tuple[int, int]) -> np.ndarray:
    """Map the file `path` as float32, zeros after its end, without an open file."""
    return torch.from_file(path, shared=True, size=shape[0] * shape[1], dtype=torch.float32).numpy().reshape(shape)
