"""Choosing the language-model weight of each method by its word errors on the development set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from asrtool.decode.search import Trial
from asrtool.decode.words import Word, is_spoken
from asrtool.score.align import align_words
from asrtool.score.result import Counts, total


@dataclass(frozen=True)
class Result:
    """Word errors of a trial on the development set."""

    trial: Trial
    counts: Counts


def count_errors(texts: Iterable[str], found: Iterable[Sequence[Word]]) -> Counts:
    """Errors of the words found in utterances against their transcripts, without the tags, which no ctm holds."""
    return total(
        align_words([word for word in text.split() if is_spoken(word)], [word.text for word in words]).counts
        for text, words in zip(texts, found, strict=True)
    )


def choose_trials(results: Iterable[Result]) -> dict[str, Trial]:
    """The trial with the fewest errors of each method; the lowest weight among equals."""
    best: dict[str, Trial] = {}
    for result in sorted(results, key=lambda result: (result.counts.err, result.trial.lm_weight)):
        best.setdefault(result.trial.method, result.trial)
    return best


def format_tuning(results: Iterable[Result], chosen: Mapping[str, Trial]) -> str:
    """A table of all trials: method, weight, words, errors by kind, error rate in percent, whether it was chosen."""
    lines = ["method\tlm_weight\twords\tsub\tdel\tins\twer_percent\tchosen\n"]
    for trial, counts in ((result.trial, result.counts) for result in results):
        rate = "-" if counts.wer is None else f"{counts.wer:.2f}"
        errors = f"{counts.num_words}\t{counts.sub}\t{counts.del_}\t{counts.ins}"
        mark = "yes" if chosen[trial.method] == trial else "no"
        lines.append(f"{trial.method}\t{trial.lm_weight:g}\t{errors}\t{rate}\t{mark}\n")
    return "".join(lines)
