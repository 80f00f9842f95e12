"""Features through the acoustic model, in batches of like length; one utterance's posteriors at a time come out."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import torch

from asrtool.corpus.batches import load_batches, plan_eval
from asrtool.corpus.index import Utterance
from asrtool.corpus.reader import FeatureReader
from asrtool.errors import AsrtoolError


@dataclass(frozen=True)
class Posteriors:
    """What the model says of an utterance: natural logarithms, float32 (T, V), and the processor seconds it took."""

    utterance: Utterance
    log_probs_TV: np.ndarray
    cpu_s: float


@contextlib.contextmanager
def torch_threads(num_threads: int) -> Iterator[None]:
    """Give torch so many threads inside the block.

    Threads that share their cores with other work wait for each other in busy loops: two threads of the model beside
    two searches on two cores took six times as long as one.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def compute_posteriors(model: torch.nn.Module, reader: FeatureReader, max_frames: int) -> Iterator[Posteriors]:
    """Posteriors of every utterance of `reader`; batches hold at most `max_frames` feature frames, padding included.

    Raises AsrtoolError naming the utterance whose posteriors are not numbers.
    """
    model.eval()
    for batch in load_batches(reader, plan_eval(reader.index, max_frames)):
        start_s = time.process_time()
        with torch.inference_mode():
            log_probs_NTV, lens_N = model(torch.from_numpy(batch.feats_NTF), torch.from_numpy(batch.feat_lens_N))
        cpu_s = time.process_time() - start_s
        num_frames = max(1, int(lens_N.sum()))
        for n, utterance in enumerate(batch.utterances):
            length = int(lens_N[n])
            log_probs_TV = log_probs_NTV[n, :length].float().numpy()
            if np.isnan(log_probs_TV).any():
                raise AsrtoolError(
                    f"utterance {utterance.id}: the model gives posteriors that are not numbers",
                    "look at the losses of its training; average other checkpoints, or train again with a lower rate",
                )
            yield Posteriors(utterance, log_probs_TV, cpu_s * length / num_frames)


class PosteriorFile:
    """Posteriors of a set in an open, empty `file`: recorded once as they come, then read as often as wanted."""

    def __init__(self, file: BinaryIO) -> None:
        self.utterances: list[Utterance] = []
        self._file = file
        self._places: list[tuple[int, tuple[int, ...]]] = []  # offset in bytes, shape

    def record(self, posteriors: Iterable[Posteriors]) -> Iterator[Posteriors]:
        """Pass `posteriors` through, writing them down. Raises OSError when the disk is full."""
        for item in posteriors:
            self.utterances.append(item.utterance)
            self._places.append((self._file.tell(), item.log_probs_TV.shape))
            self._file.write(np.ascontiguousarray(item.log_probs_TV, dtype=np.float32).data)
            yield item

    def __iter__(self) -> Iterator[Posteriors]:
        for utterance, (offset, shape) in zip(self.utterances, self._places, strict=True):
            self._file.seek(offset)
            data = self._file.read(4 * shape[0] * shape[1])
            yield Posteriors(utterance, np.frombuffer(data, np.float32).reshape(shape), 0.0)
