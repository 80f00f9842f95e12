"""Training set with audio augmented anew in each epoch.

Tempo changes the number of frames, so it is drawn for a whole epoch before it is planned; all else is drawn when an
utterance is read.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from asrtool.data.augment.audio import Augmentation, AugmentedReader, EpochCopy
from asrtool.data.batches import Lengths, check_longest
from asrtool.data.storage.index import ShardIndex
from asrtool.data.workers.loader import Decoders
from asrtool.models.objectives.targets import Targets
from asrtool.train.batches.source import SourceContext
from asrtool.train.batches.utterance_columns import Columns, ObjectiveRequirements

RNG_STREAM = 2  # keeps these random numbers apart from others of the seed and epoch


class AugmentedSet:
    """Augmented training set, read by at least one process.

    Its methods take an epoch and rows of the columns.

    Augmentation takes longer than decoding features, and holds the GIL.
    """

    def __init__(self, context: SourceContext, columns: Columns, index: ShardIndex, lengths: Lengths) -> None:
        """Open the set; AsrtoolError for a bad sound folder or an utterance over a batch."""
        assert context.augment
        augmentation = Augmentation(context.augment, context.features.sampling_rate_hz)
        open_reader = functools.partial(
            AugmentedReader, context.directory, context.features, augmentation, context.seed, index
        )
        self.decoders = Decoders(max(1, context.loader_processes), open_reader)
        self._settings = context.augment
        self._requirements = ObjectiveRequirements(context.model, Targets(columns.tokens, columns.ends))
        self._seed = context.seed
        self._columns = columns
        self._lengths = lengths
        self._num_features = context.features.num_features
        self._num_frames = functools.lru_cache(2)(self._draw_frames)  # of this epoch and the next one
        if self._settings.stretches:
            self._fits_fast = self._fits_at_fastest()
            check_longest(self._at(np.full(len(lengths.num_frames), self._settings.tempo[0])), context.max_frames)

    def lengths(self, epoch: int) -> Lengths:
        """Return the lengths of the utterances in `epoch`."""
        return dataclasses.replace(self._lengths, num_frames=self._num_frames(epoch))

    def normalisers(self, epoch: int, rows: Sequence[int]) -> np.ndarray:
        """Return the share of each utterance in the normaliser of the loss."""
        rows_N = np.asarray(rows)
        if not self._settings.stretches:
            return self._columns.normalisers[rows_N]
        num_rows = self._requirements.num_rows(self._num_frames(epoch)[rows_N])
        return self._requirements.normalisers(num_rows, self._columns.texts[rows_N])

    def read(self, epoch: int, rows: Sequence[int]) -> list[np.ndarray]:
        """Return normalised features of these utterances, each (T, F) float32.

        Raises AsrtoolError as Decoders.read.
        """
        rows_N = np.asarray(rows)
        num_frames = self._num_frames(epoch)[rows_N].tolist()
        positions = self._columns.positions[rows_N].tolist()
        copies = [EpochCopy(i, epoch, num) for i, num in zip(positions, num_frames, strict=True)]
        return self.decoders.read(copies, num_frames, self._num_features)

    def close(self) -> None:
        self.decoders.close()

    def _draw_frames(self, epoch: int) -> np.ndarray:
        num_utterances = len(self._lengths.num_frames)
        if not self._settings.stretches:
            return self._lengths.num_frames
        random = np.random.default_rng((self._seed, epoch, 0, RNG_STREAM))
        slowest, fastest = self._settings.tempo
        tempos = random.uniform(slowest, fastest, num_utterances)
        return self._at(np.where(self._fits_fast, tempos, 1.0)).num_frames

    def _at(self, tempos: np.ndarray) -> Lengths:
        frames = np.maximum(1, np.rint(self._lengths.num_frames / tempos)).astype(np.int64)
        return dataclasses.replace(self._lengths, num_frames=frames)

    def _fits_at_fastest(self) -> np.ndarray:
        """Return a mask of utterances that fit at the fastest tempo; others keep theirs."""
        fastest = self._at(np.full(len(self._lengths.num_frames), self._settings.tempo[1])).num_frames
        return self._requirements.fits(self._requirements.num_rows(fastest), self._columns.texts)
