"""Statistics of a set's utterances: histograms, and unknown words."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from asrtool.data.manifests.manifest import parse_line, read_again
from asrtool.report.figures.figure import add_legend
from asrtool.report.training import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUM_BINS = 30
SHOWN_FRACTION = 0.99  # fraction of the values; the last bin has the rest as well


@dataclass(frozen=True)
class Statistics:
    """Values by utterance in manifest order, minutes by speaker, word counts."""

    durations_s: Floats
    num_words: Floats
    speaker_minutes: Floats
    words: Mapping[str, int]

    @property
    def rates(self) -> Floats:
        """Words a second, of utterances with words and a positive duration."""
        spoken = (self.durations_s > 0) & (self.num_words > 0)
        return np.asarray(self.num_words[spoken] / self.durations_s[spoken])


# name -> title, unit of the axis, counted things, their values
HISTOGRAMS: dict[str, tuple[str, str, str, Callable[[Statistics], Floats]]] = {
    "durations": ("Duration of utterances", "seconds", "utterances", lambda found: found.durations_s),
    "words": ("Words in an utterance", "words", "utterances", lambda found: found.num_words),
    "rates": ("Speed of speech", "words a second", "utterances", lambda found: found.rates),
    "speakers": ("Speech of each speaker", "minutes", "speakers", lambda found: found.speaker_minutes),
}


def read_statistics(manifests: Path) -> Statistics:
    """Read the manifests of a folder; holds 16 bytes an utterance, and each word once.

    Raises AsrtoolError naming a corrupt line.
    """
    durations_s, num_words = array("d"), array("d")
    seconds: dict[str, float] = {}
    words: dict[str, int] = {}
    for line in read_again(manifests):
        entry = parse_line(line)
        text = (entry.get("text") or "").split()
        durations_s.append(entry["duration"])
        num_words.append(len(text))
        speaker = entry.get("speaker") or entry["recording_id"]
        seconds[speaker] = seconds.get(speaker, 0.0) + entry["duration"]
        for word in text:
            words[word] = words.get(word, 0) + 1
    return Statistics(np.array(durations_s), np.array(num_words), np.array(list(seconds.values())) / 60, words)


def percent_unknown(words: Mapping[str, int], known: Mapping[str, int]) -> str:
    """Return the percentage of running `words` that are not `known`."""
    total = sum(words.values())
    return f"{100 * sum(num for word, num in words.items() if word not in known) / total:.1f}" if total else "-"


def shown_histograms(sets: Mapping[str, Statistics]) -> list[str]:
    """Return the names of HISTOGRAMS in which not all values are equal."""
    return [name for name, histogram in HISTOGRAMS.items() if _spread(sets, histogram[3])]


def _spread(sets: Mapping[str, Statistics], values: Callable[[Statistics], Floats]) -> bool:
    found = np.concatenate([values(item) for item in sets.values()])
    return len(found) > 1 and bool(found.min() < found.max())


def draw_histogram(figure: Figure, name: str, sets: Mapping[str, Statistics]) -> None:
    """Draw the percentage of utterances or speakers by value, for each set."""
    _, unit, counted, values = HISTOGRAMS[name]
    found = {key: values(item) for key, item in sets.items()}
    edges = bin_edges(np.concatenate(list(found.values())))
    axes = figure.subplots()
    for key, some in found.items():
        if len(some):
            heights, _ = np.histogram(np.minimum(some, edges[-1]), edges)
            axes.step(edges, [*(100 * heights / len(some)), 0], where="post", label=key)
    axes.set(xlabel=unit, ylabel=f"% of the {counted}", xlim=(edges[0], edges[-1]))
    axes.set_ylim(bottom=0)
    add_legend(figure)


def bin_edges(values: Floats) -> Floats:
    """Return equal bins for SHOWN_FRACTION of `values`, NUM_BINS or fewer.

    Whole numbers get whole bins.
    """
    num = int(np.clip(len(values) ** 0.5, 5, NUM_BINS))
    high = float(np.quantile(values, SHOWN_FRACTION))
    low, high = float(min(values.min(), 0)), max(high, float(values.min()) or 1.0)
    if (values == np.round(values)).all():
        step = max(1, round((high - low) / num))
        return np.arange(low - 0.5, high + step, step)
    return np.linspace(low, high, num + 1)


def describe_histogram(name: str, sets: Mapping[str, Statistics]) -> str:
    """Describe the quartiles of each set in words."""
    title, unit, counted, values = HISTOGRAMS[name]
    texts = []
    for key, item in sets.items():
        if len(found := values(item)):
            first, median, third = np.quantile(found, [0.25, 0.5, 0.75])
            texts.append(f"{key}: half of the {counted} have {first:.3g} to {third:.3g}, median {median:.3g}")
    return f"{title} in {unit}. {'; '.join(texts)}."
