"""Apply the acoustic model in batches of similar length; yield scores.

Letters in names: N utterances, T rows, V columns of the scores, F features of a frame.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from asrtool.data.batches import Batch, Lengths, load_ahead, pad_feats, plan_eval
from asrtool.data.remote.features import prefetching
from asrtool.data.storage.index import WINDOW_SHARDS, Utterance
from asrtool.data.storage.reader import FeatureReader, reads_audio
from asrtool.data.workers.loader import Decoders
from asrtool.decode.acoustic_model import AcousticModel, Scored, check_scores
from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import choose_device
from asrtool.models.precision import free_unused, is_out_of_memory

PREFETCH = 4  # batches that are read ahead


def open_features(
    directory: Path, acoustic: AcousticModel, index: Sequence[Utterance] | None = None, on_worker: bool = False
) -> FeatureReader:
    """Open one set, normalised as the model was trained, with its `index` if open.

    Features are read once and not kept. Raises AsrtoolError if the model expects other features.
    """
    cmvn = acoustic.info["features"]["cmvn"]
    # Decoder processes compute features with one torch thread, as workers do; here torch has more threads.
    open_one = functools.partial(FeatureReader, directory, cmvn, 0, index)
    decoders = Decoders(1, open_one) if reads_audio(directory) and not on_worker else None
    reader = FeatureReader(directory, cmvn, 0, index, decoders)
    if reader.num_bins != acoustic.info["num_features"]:
        raise AsrtoolError(
            f"{directory}: {reader.num_bins} features a frame, but {acoustic.path} was trained on"
            f" {acoustic.info['num_features']}",
            "run the stages train and average again with these features",
        )
    return reader


def compute_scores(model: torch.nn.Module, reader: FeatureReader, max_frames: int) -> Iterator[Scored]:
    """Yield scores of every utterance of `reader` that has a text.

    Batches hold at most `max_frames` feature frames, padding included. Raises AsrtoolError as score_batch.
    """
    numbers = list(dict.fromkeys(utterance.shard for utterance in reader.index))
    batches = prefetching(
        reader.directory,
        plan_eval(Lengths.of(reader.index), max_frames),
        lambda batch: batch.window,
        lambda window: numbers[window * WINDOW_SHARDS :][:WINDOW_SHARDS],
    )
    for loaded in load_ahead(functools.partial(load_batch, reader), batches, PREFETCH):
        yield from score_batch(model, reader, *loaded)


def load_batch(reader: FeatureReader, batch: Batch) -> tuple[Sequence[int], np.ndarray, np.ndarray]:
    """Return the index positions, features (N, T, F) and lengths (N,) of a batch."""
    return batch.indices, *pad_feats(reader.read_several(batch.indices))


def score_batch(
    model: torch.nn.Module, reader: FeatureReader, indices: Sequence[int], feats_NTF: np.ndarray, lens_N: np.ndarray
) -> Iterator[Scored]:
    """Yield scores of the utterances at `indices` of the set, with their texts.

    The model moves to a GPU if torch finds one; scores come back to the host. Processes forked afterwards must not use
    it, since CUDA does not survive a fork. Raises AsrtoolError naming an utterance with NaN.
    """
    device = choose_device()
    model.to(device).eval()
    start_s = time.process_time()
    scores_NTV, lens = apply_model(model, feats_NTF, lens_N, device)
    cpu_s = time.process_time() - start_s
    num_rows = max(1, sum(lens))
    utterances = [reader.index[i] for i in indices]
    for n, (i, utterance, text) in enumerate(zip(indices, utterances, reader.texts(utterances), strict=True)):
        if text is None:
            continue
        scores_TV = scores_NTV[n, : lens[n]]
        check_scores(scores_TV, utterance.id)
        yield Scored(dataclasses.replace(utterance, text=text), scores_TV, cpu_s * lens[n] / num_rows, i)


def apply_model(
    model: torch.nn.Module, feats_NTF: np.ndarray, feat_lens_N: np.ndarray, device: torch.device
) -> tuple[np.ndarray, list[int]]:
    """Return scores (N, T, V) on the host, and the rows of each utterance.

    A batch that does not fit memory is computed in halves. Raises AsrtoolError if a single utterance does not fit.
    """
    try:
        with torch.inference_mode():
            scores_NTV, lens_N = model(torch.from_numpy(feats_NTF).to(device), torch.from_numpy(feat_lens_N).to(device))
            return scores_NTV.float().cpu().numpy(), lens_N.tolist()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        num, num_frames = feats_NTF.shape[:2]
        if num == 1:
            what = f"an utterance of {num_frames} frames does not fit memory"
            raise AsrtoolError(what, "free some, or hide a GPU with CUDA_VISIBLE_DEVICES=") from error
    free_unused()
    logging.warning("%d utterances do not fit memory: computing them in halves (decode.batch_s)", num)
    halves = [
        apply_model(model, feats_NTF[part, : feat_lens_N[part].max()], feat_lens_N[part], device)
        for part in (slice(num // 2), slice(num // 2, num))
    ]
    num_rows = max(scores_NTV.shape[1] for scores_NTV, _ in halves)
    padded = [np.pad(each_NTV, ((0, 0), (0, num_rows - each_NTV.shape[1]), (0, 0))) for each_NTV, _ in halves]
    return np.concatenate(padded), [length for _, lens in halves for length in lens]
