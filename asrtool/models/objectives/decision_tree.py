"""Decision tree that ties HMM states of tokens in context to pdfs (leaves).

A token with its left context has two HMM states: its first row, and all further ones (the topology of Povey et al.
2016, section 4). Token 0 is silence, which has one pdf and no context. A sequence of pdfs determines its tokens, as a
first row always begins one. Needs no torch.

Letters in names: V tokens, L pdfs, R rows, S segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from asrtool.errors import AsrtoolError

SILENCE = 0  # the token, and its leaf
FIRST, FURTHER = 0, 1  # places
FILE = "tree.npz"


@dataclass(frozen=True)
class Tree:
    """Pdf of each token in context, and its count in training."""

    leaves_VV2: np.ndarray  # int32: of a left context, a token and a place
    counts_L: np.ndarray  # int64, rows

    @property
    def num_leaves(self) -> int:
        return len(self.counts_L)

    @cached_property
    def tokens_L(self) -> np.ndarray:
        """The token of each leaf; no two share one."""
        return self._of_leaves(np.arange(self.leaves_VV2.shape[1])[:, None])

    @cached_property
    def places_L(self) -> np.ndarray:
        """The place of each leaf; silence is all further rows, so it begins no token."""
        places_L = self._of_leaves(np.arange(2))
        places_L[SILENCE] = FURTHER
        return places_L

    @cached_property
    def log_priors_L(self) -> np.ndarray:
        """Natural logarithms of relative frequencies, float32; 0 for unseen pdfs.

        An unseen pdf thus never wins.
        """
        share_L = np.where(self.counts_L > 0, self.counts_L, self.counts_L.sum()) / max(self.counts_L.sum(), 1)
        return np.log(np.maximum(share_L, np.finfo(np.float32).tiny)).astype(np.float32)

    def targets(self, segments_S2: np.ndarray, num_rows: int, subsampling: int) -> np.ndarray:
        """The leaf of each row (R,), int64; a row is what its middle frame is.

        `segments_S2` are tokens and the frames they begin at, of which the first is 0; a row stands for `subsampling`
        frames.
        """
        lefts_R, tokens_R, places_R = contexts(segments_S2, num_rows, subsampling)
        return self.leaves_VV2[lefts_R, tokens_R, places_R].astype(np.int64)

    def is_same(self, other: Tree) -> bool:
        """Return whether both trees have the same pdfs."""
        return np.array_equal(self.leaves_VV2, other.leaves_VV2)

    def save(self, folder: Path) -> None:
        np.savez(folder / FILE, leaves_VV2=self.leaves_VV2, counts_L=self.counts_L)

    @classmethod
    def load(cls, folder: Path) -> Tree:
        """Load the tree of frame targets or a graph in `folder`; AsrtoolError if missing."""
        path = folder / FILE
        try:
            with np.load(path) as arrays:
                return cls(arrays["leaves_VV2"], arrays["counts_L"])
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise AsrtoolError(
                f"{path}: no decision tree", "run `asrtool targets`, or `asrtool graph` with it"
            ) from error

    def _of_leaves(self, values: np.ndarray) -> np.ndarray:
        found_L = np.zeros(self.num_leaves, dtype=np.int64)
        found_L[self.leaves_VV2] = np.broadcast_to(values, self.leaves_VV2.shape)
        return found_L


def contexts(segments_S2: np.ndarray, num_rows: int, subsampling: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Left context, token and place of each row (R,); arguments as Tree.targets.

    The left context of the first token is silence.
    """
    tokens_S, begins_S = segments_S2[:, 0].astype(np.int64), segments_S2[:, 1]
    middle_R = np.arange(num_rows) * subsampling + subsampling // 2
    segment_R = np.searchsorted(begins_S, middle_R, side="right") - 1
    tokens_R = tokens_S[segment_R]
    lefts_R = np.concatenate([[SILENCE], tokens_S])[segment_R]
    places_R = np.where(np.diff(segment_R, prepend=-1) > 0, FIRST, FURTHER)
    is_silence_R = tokens_R == SILENCE
    lefts_R[is_silence_R], places_R[is_silence_R] = SILENCE, FURTHER
    return lefts_R, tokens_R, places_R
