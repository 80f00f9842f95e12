"""Features of utterances whose audio is changed, anew for each epoch.

Letters in names: T frames, F features of a frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from asrtool.data.augment.audio import Augmentation
from asrtool.data.features.cmvn import Cmvn
from asrtool.data.features.feature_type import FeatureType, one_thread
from asrtool.data.storage.index import Utterance
from asrtool.data.storage.reader import FeatureReader, SampleReader
from asrtool.settings.data import Features

STREAM = 1  # of random numbers, apart from others that are drawn from seed and epoch


class EpochCopy(NamedTuple):
    """An utterance as an epoch has it."""

    position: int  # in the index
    epoch: int
    num_frames: int  # at the tempo that it has there


class AugmentedReader:
    """Reads the utterances of a set as they are in an epoch.

    A pure function of the seed, the epoch and the place of an utterance in the index: neither the order of reading nor
    which process reads has an influence. torch computes in one thread.
    """

    def __init__(
        self, directory: Path, features: Features, augmentation: Augmentation, seed: int, index: Sequence[Utterance]
    ) -> None:
        """`features` are those that the set was made with; AsrtoolError as FeatureReader."""
        self._stored = FeatureReader(directory, "none", index=index)
        self._samples = SampleReader(directory, index, features.sampling_rate_hz)
        self._cmvn = Cmvn(directory, features.cmvn)
        self._extractor: FeatureType = features.type.load()(features)
        self._augmentation = augmentation
        self._seed = seed
        self._index = index

    def read(self, copy: EpochCopy) -> np.ndarray:
        """Return normalised features (num_frames, F), stored ones if nothing changed."""
        utterance, stored_TF = self._index[copy.position], self._stored.read(copy.position)
        samples_S = self._samples.read(copy.position)
        num_samples = len(samples_S)
        if copy.num_frames != utterance.num_frames:
            num_samples = max(1, round(num_samples * copy.num_frames / utterance.num_frames))
        random = np.random.default_rng((self._seed, copy.epoch, copy.position, STREAM))
        with one_thread():
            changed_S = self._augmentation.change(samples_S, num_samples, random)
            if changed_S is samples_S:
                return self._cmvn.normalise(utterance.speaker, stored_TF)
            feats_TF = _fit(self._extractor.extract(changed_S), copy.num_frames)
        return self._cmvn.normalise_changed(utterance.speaker, feats_TF, stored_TF)


def _fit(feats_TF: np.ndarray, num_frames: int) -> np.ndarray:
    """Drop or repeat the last frame if rounding changed the length by one."""
    missing = num_frames - len(feats_TF)
    return np.pad(feats_TF, ((0, missing), (0, 0)), "edge") if missing > 0 else feats_TF[:num_frames]
