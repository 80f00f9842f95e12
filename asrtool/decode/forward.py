"""Features through the acoustic model, in batches of like length; one utterance's scores at a time come out.

Letters in names: N utterances, T rows, V columns of the scores, F features of a frame.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import torch

from asrtool.corpus.batches import LoadedBatch, load_batches, plan_eval
from asrtool.corpus.index import Utterance
from asrtool.corpus.reader import FeatureReader
from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import choose_device


@dataclass(frozen=True)
class Scored:
    """What the objective gives for an utterance: its scores, float32 (T, V), and the CPU seconds they took."""

    utterance: Utterance
    scores_TV: np.ndarray
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


def compute_scores(model: torch.nn.Module, reader: FeatureReader, max_frames: int) -> Iterator[Scored]:
    """Scores of every utterance of `reader`; batches hold at most `max_frames` feature frames, padding included.

    The model is moved to a GPU where torch sees one, the scores come back to the host. Processes that are forked from
    this one must be so before: CUDA does not survive a fork. Raises AsrtoolError naming the utterance whose scores are
    not numbers.
    """
    device = choose_device()
    model.to(device).eval()
    for batch in load_batches(reader, plan_eval(reader.index, max_frames)):
        start_s = time.process_time()
        scores_NTV, lens = _apply(model, batch, device)
        cpu_s = time.process_time() - start_s
        num_rows = max(1, sum(lens))
        for n, utterance in enumerate(batch.utterances):
            scores_TV = scores_NTV[n, : lens[n]]
            if np.isnan(scores_TV).any():
                raise AsrtoolError(
                    f"utterance {utterance.id}: the model gives scores that are not numbers",
                    "look at the losses of its training; average other checkpoints, or train again with a lower rate",
                )
            yield Scored(utterance, scores_TV, cpu_s * lens[n] / num_rows)


def _apply(model: torch.nn.Module, batch: LoadedBatch, device: torch.device) -> tuple[np.ndarray, list[int]]:
    """Scores (N, T, V) on the host, and the rows of each utterance."""
    with torch.inference_mode():
        feats_NTF, lens_N = torch.from_numpy(batch.feats_NTF), torch.from_numpy(batch.feat_lens_N)
        scores_NTV, lens_N = model(feats_NTF.to(device), lens_N.to(device))
    return scores_NTV.float().cpu().numpy(), lens_N.tolist()


class ScoreFile:
    """Scores of a set in an open, empty `file`: recorded once as they arrive, then read as often as wanted."""

    def __init__(self, file: BinaryIO) -> None:
        self.utterances: list[Utterance] = []
        self._file = file
        self._places: list[tuple[int, tuple[int, ...]]] = []  # offset in bytes, shape

    def record(self, scored: Iterable[Scored]) -> Iterator[Scored]:
        """Pass `scored` through, writing them down. Raises OSError when the disk is full."""
        for item in scored:
            self.utterances.append(item.utterance)
            self._places.append((self._file.tell(), item.scores_TV.shape))
            self._file.write(np.ascontiguousarray(item.scores_TV, dtype=np.float32).data)
            yield item

    def __iter__(self) -> Iterator[Scored]:
        for utterance, (offset, shape) in zip(self.utterances, self._places, strict=True):
            self._file.seek(offset)
            data = self._file.read(4 * shape[0] * shape[1])
            yield Scored(utterance, np.frombuffer(data, np.float32).reshape(shape), 0.0)
