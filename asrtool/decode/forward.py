"""Features through the acoustic model, in batches of like length; one utterance's posteriors at a time come out."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from asrtool.corpus.batches import load_batches, plan_eval
from asrtool.corpus.index import Utterance
from asrtool.corpus.reader import FeatureReader


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
    """Posteriors of every utterance of `reader`; batches hold at most `max_frames` feature frames, padding included."""
    model.eval()
    for batch in load_batches(reader, plan_eval(reader.index, max_frames)):
        start_s = time.process_time()
        with torch.inference_mode():
            log_probs_NTV, lens_N = model(torch.from_numpy(batch.feats_NTF), torch.from_numpy(batch.feat_lens_N))
        cpu_s = time.process_time() - start_s
        num_frames = max(1, int(lens_N.sum()))
        for n, utterance in enumerate(batch.utterances):
            length = int(lens_N[n])
            yield Posteriors(utterance, log_probs_NTV[n, :length].float().numpy(), cpu_s * length / num_frames)
