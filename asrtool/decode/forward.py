"""Apply the acoustic model in batches of similar length; yield scores.

Letters in names: N utterances, T rows, V columns of the scores, F features of a frame.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import pickle
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from asrtool.data.batches import Batch, Lengths, load_ahead, pad_feats, plan_eval
from asrtool.data.remote.features import prefetching
from asrtool.data.storage.index import WINDOW_SHARDS, Utterance
from asrtool.data.storage.reader import FeatureReader, reads_audio
from asrtool.data.workers.loader import Decoders
from asrtool.errors import AsrtoolError
from asrtool.lang.tokenizer import Tokenizer
from asrtool.models.acoustic import AcousticModel as AcousticModule
from asrtool.models.acoustic import choose_device, load_model, tree_of
from asrtool.models.objectives.topology import Topology, load_topology
from asrtool.models.precision import free_unused, is_out_of_memory
from asrtool.settings.decode import Decode, check_searches
from asrtool.settings.schema import Choice
from asrtool.settings.toml_files import load_section

PREFETCH = 4  # batches that are read ahead


@dataclass(frozen=True)
class AcousticModel:
    """Model with its file and the file's info."""

    path: Path
    model: AcousticModule
    info: dict[str, Any]

    @property
    def frame_shift_ms(self) -> float:
        """Time from one feature frame to the next."""
        return float(self.info["features"]["frame_shift_ms"])

    @property
    def frame_s(self) -> float:
        """Time from one row of scores to the next."""
        return self.frame_shift_ms * int(self.model.encoder.subsampling) / 1000

    @cached_property
    def objective(self) -> Choice:
        """Objective that the model was trained for."""
        chosen: Choice = load_section("model", self.info["model"], str(self.path)).objective
        return chosen

    @cached_property
    def topology(self) -> Topology:
        """Topology of its scores."""
        return load_topology(self.objective, tree_of(self.info))


def load_searched_model(path: Path, settings: Decode) -> AcousticModel:
    """Load `path`; AsrtoolError if it is broken or a method cannot search its scores."""
    acoustic = load_acoustic_model(path)
    try:
        check_searches(settings, acoustic.objective)
    except ValueError as error:
        raise AsrtoolError(f"{path}: {error}", "choose other methods") from error
    return acoustic


def load_acoustic_model(path: Path) -> AcousticModel:
    """Load `path`; AsrtoolError if it is missing or broken."""
    if not path.exists():
        raise AsrtoolError(f"{path}: no acoustic model", "run the stages train and average first")
    return AcousticModel(path, *load_model(path))


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


def load_tokenizer(directory: Path, acoustic: AcousticModel) -> Tokenizer:
    """Load a tokenizer; AsrtoolError unless its tokens are the model's outputs."""
    tokenizer, num_tokens = Tokenizer.load(directory), acoustic.info["num_tokens"]
    hint = "use the tokenizer that it was trained with, or train it again with this one"
    if tokenizer.num_tokens != num_tokens:
        found = f"{tokenizer.num_tokens} tokens, but {acoustic.path} was trained on {num_tokens}"
        raise AsrtoolError(f"{directory}: {found}", hint)
    if tokenizer.digest != acoustic.info["tokenizer"]:
        raise AsrtoolError(f"{directory}: {acoustic.path} was trained on {num_tokens} other tokens", hint)
    return tokenizer


@dataclass(frozen=True)
class Scored:
    """Scores of an utterance, float32 (T, V), and the CPU seconds they took."""

    utterance: Utterance
    scores_TV: np.ndarray
    cpu_s: float
    position: int = 0  # position of the utterance in the index of its set


@contextlib.contextmanager
def torch_threads(num_threads: int) -> Iterator[None]:
    """Give torch `num_threads` threads inside the context, or fewer if it has fewer.

    Torch's threads wait for each other in busy loops, which is slow on shared cores: beside two searches on two cores,
    two threads took six times as long as one.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(min(num_threads, before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


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


def check_scores(scores_TV: np.ndarray, name: str) -> None:
    """Raise AsrtoolError naming the utterance if scores are NaN."""
    if np.isnan(scores_TV).any():
        raise AsrtoolError(
            f"utterance {name}: the model gives scores that are NaN",
            "look at the losses of its training; average other checkpoints, or train again with a lower rate",
        )


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


class ScoreFile:
    """Scores of a set in an open file: recorded as they arrive, then read again."""

    def __init__(self, file: BinaryIO) -> None:
        self.is_whole = False  # True once all are recorded
        self._file = file

    def record(self, scored: Iterable[Scored]) -> Iterator[Scored]:
        """Write `scored` and pass them through; OSError if the disk is full."""
        for item in scored:
            pickle.dump(dataclasses.replace(item, cpu_s=0.0), self._file)
            yield item
        self.is_whole = True

    def __iter__(self) -> Iterator[Scored]:
        self._file.seek(0)
        with contextlib.suppress(EOFError):
            while True:
                yield pickle.load(self._file)
