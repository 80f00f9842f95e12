"""Leaves of a decision tree, row by row, as targets of the utterances of a set.

Letters in names: N utterances, P pieces of them, T frames, F features of a frame, U targets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from asrtool.data.batches import zeros_NTF
from asrtool.data.storage.alignment import Alignment
from asrtool.errors import AsrtoolError
from asrtool.models.objectives.decision_tree import Tree
from asrtool.train.batches.batch import TrainingBatch, pinned_NTF


@dataclass(frozen=True)
class FrameTargets:
    """Frame targets of a set for a model with `subsampling` frames a row."""

    alignment: Alignment
    tree: Tree
    subsampling: int
    piece_frames: int = 0  # length of chunks; 0 leaves utterances whole

    def leaves(self, position: int, num_frames: int, num_aligned: int) -> np.ndarray:
        """Return a pdf for each row of the utterance at `position`, int64.

        The utterance has `num_frames` frames, and had `num_aligned` when it was aligned, maybe at another tempo.
        Tokens begin at the same fraction of it, so each of them has one first row.
        """
        num_rows = -(-num_frames // self.subsampling)
        segments_S2 = self.alignment.segments(position)
        if num_frames != num_aligned:
            segments_S2 = segments_S2 * np.array([1.0, num_frames / num_aligned])
        return self.tree.targets(segments_S2, num_rows, self.subsampling)

    def cut(self, batch: TrainingBatch) -> TrainingBatch:
        """Return `batch` cut into chunks of `piece_frames`, each trained as an utterance.

        The rows stay the same; LSTM state does not cross chunks.
        """
        length, rows = self.piece_frames, self.piece_frames // self.subsampling
        utterances = [(n, at) for n, num in enumerate(batch.input_lens_N.tolist()) for at in range(0, num, length)]
        zeros = pinned_NTF if torch.cuda.is_available() else zeros_NTF
        inputs_PTF = zeros((len(utterances), length, batch.inputs_NT.shape[2]))
        targets_PU = torch.zeros((len(utterances), rows), dtype=torch.int64)
        for p, (n, at) in enumerate(utterances):
            frames_TF, targets_U = batch.inputs_NT[n, at : at + length], batch.targets_NU[n, at // self.subsampling :]
            inputs_PTF[p, : len(frames_TF)] = frames_TF
            targets_PU[p, : len(targets_U)] = targets_U[:rows]
        utterance_P, at_P = np.array(utterances).T
        input_lens_P = np.minimum(batch.input_lens_N[utterance_P] - at_P, length)
        return dataclasses.replace(
            batch,
            ids=[batch.ids[n] for n in utterance_P],
            inputs_NT=inputs_PTF,
            input_lens_N=input_lens_P,
            targets_NU=targets_PU,
            target_lens_N=torch.from_numpy(-(-input_lens_P // self.subsampling)),
        )


@dataclass(frozen=True)
class TargetsFolder:
    """Output of `asrtool targets`, with its tree."""

    path: Path
    tree: Tree
    piece_frames: int = 0  # see FrameTargets

    def of_set(self, name: str, subsampling: int) -> FrameTargets:
        """Return the targets of the set `name`; AsrtoolError if missing or broken.

        Also raised if chunks are not whole rows.
        """
        if self.piece_frames % subsampling:
            what = f"model.frame-ce.piece_frames is {self.piece_frames}, but a row is {subsampling} frames"
            raise AsrtoolError(what, "set it to a multiple")
        return FrameTargets(Alignment(self.path / name), self.tree, subsampling, self.piece_frames)

    def sequences(self) -> Iterator[np.ndarray]:
        """Yield the tokens (S,) of each training utterance with silence.

        Raises AsrtoolError as `of_set`.
        """
        yield from Alignment(self.path / "train").sequences()
