"""Leaves of a decision tree, row by row, as targets of the utterances of a set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asrtool.corpus.alignment import Alignment
from asrtool.models.tree import Tree


@dataclass(frozen=True)
class FrameTargets:
    """By the alignment of a set, for a model whose rows stand for `subsampling` frames."""

    alignment: Alignment
    tree: Tree
    subsampling: int

    def lacks(self, position: int) -> bool:
        """Whether the utterance at `position` in the index has none."""
        return self.alignment.lacks(position)

    def leaves(self, position: int, num_frames: int) -> np.ndarray:
        """One for each row of the utterance at `position`, int64."""
        num_rows = -(-num_frames // self.subsampling)
        return self.tree.targets(self.alignment.segments(position), num_rows, self.subsampling)


@dataclass(frozen=True)
class TargetsFolder:
    """What `asrtool targets` wrote, its tree read."""

    path: Path
    tree: Tree

    def of_set(self, name: str, subsampling: int) -> FrameTargets:
        """Those of the set `name`; AsrtoolError where they are missing or broken."""
        return FrameTargets(Alignment(self.path / name), self.tree, subsampling)
