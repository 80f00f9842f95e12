"""Mean and variance normalisation: `cmvn.npz`, and normalised features.

`cmvn.npz` holds `names` of speakers, and `means` and `stds`, float32 of shape (speakers, num_bins); the first one,
`*`, is the whole training set.

Letters in names: S speakers, F bins.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asrtool.errors import AsrtoolError

CMVN = "cmvn.npz"
EVERYONE = "*"
MIN_SPEAKER_FRAMES = 500  # a speaker of the training with less (5 s at 10 ms) is normalised like all of it
PRIOR_FRAMES = 100  # that complete other speakers with less
STD_FLOOR = 0.1  # least deviation of a log energy; keeps the rounding noise of a constant bin small

MeanStd = tuple[np.ndarray, np.ndarray]  # mean and deviation of each bin, (F,) float32


@dataclass(frozen=True)
class Moments:
    """Sums over feature frames; they add up over processes."""

    num_frames: int
    sum_F: np.ndarray  # float64, of each bin
    sum_squares_F: np.ndarray  # float64

    @classmethod
    def of(cls, feats_TF: np.ndarray) -> Moments:
        """Return the sums over the frames of `feats_TF`, in float64."""
        exact_TF = feats_TF.astype(np.float64)
        return cls(len(exact_TF), exact_TF.sum(axis=0), (exact_TF**2).sum(axis=0))

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.num_frames + other.num_frames,
            self.sum_F + other.sum_F,
            self.sum_squares_F + other.sum_squares_F,
        )

    def mean_std(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and floored standard deviation of each bin, float32."""
        assert self.num_frames > 0, "no frames to take a mean of"
        mean_F = self.sum_F / self.num_frames
        # Rounding can leave a tiny negative variance if a bin is constant.
        variance_F = np.maximum(self.sum_squares_F / self.num_frames - mean_F**2, 0)
        return mean_F.astype(np.float32), np.maximum(np.sqrt(variance_F), STD_FLOOR).astype(np.float32)


def complete(moments: Moments, everyone: MeanStd) -> MeanStd:
    """Return mean and deviation of a speaker whom the model was not trained on.

    With less than MIN_SPEAKER_FRAMES they include PRIOR_FRAMES with the statistics of `everyone`.
    """
    if moments.num_frames < MIN_SPEAKER_FRAMES:
        mean_F, std_F = (values_F.astype(np.float64) for values_F in everyone)
        moments += Moments(PRIOR_FRAMES, PRIOR_FRAMES * mean_F, PRIOR_FRAMES * (mean_F**2 + std_F**2))
    return moments.mean_std()


def add_moments(totals: dict[str, Moments], new: Mapping[str, Moments]) -> None:
    """Add `new` to `totals`, speaker by speaker."""
    for speaker, moments in new.items():
        totals[speaker] = totals[speaker] + moments if speaker in totals else moments


def write_cmvn(directory: Path, speakers: Mapping[str, Moments], everyone: Moments) -> None:
    """Write `directory`/cmvn.npz: all speakers together, and those with enough frames.

    The minimum is MIN_SPEAKER_FRAMES.
    """
    rows = {name: moments.mean_std() for name, moments in speakers.items() if moments.num_frames >= MIN_SPEAKER_FRAMES}
    _write(directory, {EVERYONE: everyone.mean_std(), **rows})


def write_more_cmvn(directory: Path, base: Path, speakers: Mapping[str, Moments]) -> None:
    """Write `directory`/cmvn.npz: `base`'s content and the speakers it lacks.

    Those with little speech are completed by the training set.
    """
    names, means_SF, stds_SF = _read(base / CMVN)
    known = dict(zip(names, zip(means_SF, stds_SF, strict=True), strict=True))
    more = {name: complete(moments, known[EVERYONE]) for name, moments in speakers.items() if moments.num_frames}
    _write(directory, {**known, **more, **known})


def write_everyone(directory: Path, base: Path) -> None:
    """Write `directory`/cmvn.npz with the whole training set of `base`, no speaker."""
    names, means_SF, stds_SF = _read(base / CMVN)
    row = names.index(EVERYONE)
    _write(directory, {EVERYONE: (means_SF[row], stds_SF[row])})


def _write(directory: Path, rows: Mapping[str, MeanStd]) -> None:
    means_SF, stds_SF = (np.stack([row[i] for row in rows.values()]) for i in (0, 1))
    with open(directory / CMVN, "wb") as file:
        np.savez(file, names=np.array(list(rows)), means=means_SF, stds=stds_SF)


def _read(path: Path) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return names, means and deviations; AsrtoolError for a broken file."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            names, means_SF, stds_SF = arrays["names"].tolist(), arrays["means"], arrays["stds"]
            if EVERYONE not in names or not len(names) == len(means_SF) == len(stds_SF):
                raise ValueError(f"{len(names)} names, {len(means_SF)} means, {len(stds_SF)} deviations")
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise AsrtoolError(f"{path}: no readable normalisation: {error}", "run the features stage again") from error
    return names, means_SF, stds_SF


class Cmvn:
    """Normalisation of features by `cmvn`: `speaker`, `utterance`, `global` or `none`."""

    def __init__(self, directory: Path, cmvn: str) -> None:
        """Read `directory`/cmvn.npz; AsrtoolError if it is missing or broken."""
        names, self._means_SF, self._stds_SF = _read(Path(directory) / CMVN)
        self._rows = {name: row for row, name in enumerate(names)} if cmvn == "speaker" else {}
        self._learned: dict[str, MeanStd] = {}
        self._everyone = names.index(EVERYONE)
        self.cmvn = cmvn
        self.num_bins = self._means_SF.shape[1]

    def learn(self, speaker: str, moments: Moments) -> None:
        """Normalise `speaker` by these sums from now on, if by speaker.

        Those of few frames are completed by the training set.
        """
        if self.cmvn == "speaker" and moments.num_frames:
            self._learned[speaker] = complete(moments, self.global_mean_std())

    def global_mean_std(self) -> MeanStd:
        """Return mean and deviation of each bin over the whole training set."""
        return self._means_SF[self._everyone], self._stds_SF[self._everyone]

    def global_std(self) -> np.ndarray:
        """Return the deviations of the whole training set, (F,); 1 without normalisation."""
        return np.ones(self.num_bins, np.float32) if self.cmvn == "none" else self.global_mean_std()[1]

    def normalise(self, speaker: str, feats_TF: np.ndarray) -> np.ndarray:
        """Return (feats - mean) / std of the speaker, float32; of all if not listed."""
        if self.cmvn == "none" or not len(feats_TF):
            return feats_TF
        if self.cmvn == "utterance":
            mean_F, std_F = Moments.of(feats_TF).mean_std()
        else:
            mean_F, std_F = self._mean_std(speaker)
        return (feats_TF - mean_F) / std_F

    def normalise_changed(self, speaker: str, feats_TF: np.ndarray, original_TF: np.ndarray) -> np.ndarray:
        """Normalise augmented features; `original_TF` are the features before.

        By speaker: mean and deviation move as the change moved the utterance's, as if all of the speaker had been
        changed alike, like a noisy speaker of a test set.
        """
        if self.cmvn != "speaker" or not (speaker in self._rows or speaker in self._learned):
            return self.normalise(speaker, feats_TF)
        mean_F, std_F = self._mean_std(speaker)
        before, after = Moments.of(original_TF).mean_std(), Moments.of(feats_TF).mean_std()
        return (feats_TF - (mean_F + after[0] - before[0])) / (std_F * after[1] / before[1])

    def _mean_std(self, speaker: str) -> MeanStd:
        if speaker in self._learned:
            return self._learned[speaker]
        row = self._rows.get(speaker, self._everyone)
        return self._means_SF[row], self._stds_SF[row]
