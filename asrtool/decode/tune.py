"""Choosing the weights of each method by its word errors on the development set.

One weight is varied after the other: the language-model weight at the widest beam and the word penalty nearest to
zero, then the penalty, then the beam. The weights of rescoring, which need no search, are all tried together.

Reads a work directory (docs/guide/files.md), writes `tuning.tsv` (what was tried) and `tuning.json` (what was chosen).
"""

from __future__ import annotations

import itertools
import logging
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from asrtool.config import Config
from asrtool.decode.decoder import Decoder, open_decoder
from asrtool.decode.forward import PosteriorFile
from asrtool.decode.rescore import ScoredList
from asrtool.decode.settings import Decode, settings_of
from asrtool.decode.trial import NUMBERS, Trial, format_trials
from asrtool.decode.words import is_spoken
from asrtool.files import write_folder
from asrtool.score.align import align_words
from asrtool.score.result import Counts, total


@dataclass(frozen=True)
class Result:
    """Word errors of a trial on the development set."""

    trial: Trial
    counts: Counts


def tune_run(work: Path, out: Path, config: Config) -> str:
    """Tune all methods on the dev set of `work`, write the folder `out` and return the table of all trials.

    The acoustic model is applied once. Raises AsrtoolError when an input is missing or broken, or when model,
    features, tokenizer and graph do not belong together.
    """
    settings = config.decode
    methods = [method.name for method in settings.methods]
    graph = settings_of(settings, "graph")
    with (
        open_decoder(work, config, graph.word_penalties if graph else (0.0,)) as decoder,
        write_folder(out, "tuning.json") as folder,
        tempfile.TemporaryFile(dir=folder) as file,
    ):
        dev = _Dev(decoder, PosteriorFile(file))
        results = dev.tune(settings, bool(decoder.neural))
        chosen = choose_trials(results)
        table = format_tuning(results, chosen)
        (folder / "tuning.tsv").write_text(table, encoding="utf-8")
        text = format_trials(chosen[method] for method in methods)
        (folder / "tuning.json").write_text(text, encoding="utf-8")
    return table


class _Dev:
    """The dev set, whose posteriors are computed by the first search and read by the later ones."""

    def __init__(self, decoder: Decoder, posteriors: PosteriorFile) -> None:
        self.decoder = decoder
        self.posteriors = posteriors
        self.reader = decoder.open("dev")
        self.recorded = False

    def tune(self, settings: Decode, neural: bool) -> list[Result]:
        names = dict.fromkeys(method.name for method in settings.methods)
        searched = [method for method in names if method != "rescore"]
        results = self._count(first_trials(settings, searched))
        for vary in (other_penalties, other_beams):
            chosen = choose_trials(results)
            results += self._count([trial for method in searched for trial in vary(settings, chosen[method])])
        if "rescore" in names:
            first = choose_trials(results)["graph"]
            lists = self.decoder.lists(self.posteriors, first, "dev, n-best lists", len(self.reader.index))
            texts = [utterance.text for utterance in self.posteriors.utterances]
            trials = rescore_trials(settings, first.beam, neural)
            results += count_rescored(texts, lists, trials)
        return results

    def _count(self, trials: Sequence[Trial]) -> list[Result]:
        if not trials:
            return []
        posteriors = self.posteriors if self.recorded else self.posteriors.record(self.decoder.posteriors(self.reader))
        decoded = self.decoder.search(posteriors, trials, f"dev, {len(trials)} trials", len(self.reader.index))
        self.recorded = True
        texts = [utterance.text for utterance in decoded.utterances]
        results = []
        for trial in trials:
            found = ([word.text for word in words] for words in decoded.words[trial])
            counts = total(map(count_errors, texts, found))
            logging.info("dev, %s: %d errors in %d words", _name(trial), counts.err, counts.num_words)
            results.append(Result(trial, counts))
        return results


def _name(trial: Trial) -> str:
    return " ".join([trial.method, *(f"{name}={value:g}" for name, value in trial.settings().items())])


def first_trials(settings: Decode, methods: Iterable[str]) -> list[Trial]:
    """Every language-model weight, at the widest beam and the word penalty nearest to zero."""
    trials = []
    for method in methods:
        if method == "greedy":
            trials.append(Trial(method))
        else:
            own = settings_of(settings, method)
            penalty, widest = min(own.word_penalties, key=abs), max(_beams(settings, method))
            trials += [Trial(method, weight, penalty, widest) for weight in dict.fromkeys(own.lm_weights)]
    return trials


def other_penalties(settings: Decode, trial: Trial) -> list[Trial]:
    """`trial` with each other word penalty."""
    penalties = dict.fromkeys(getattr(settings_of(settings, trial.method), "word_penalties", ()))
    return [replace(trial, word_penalty=penalty) for penalty in penalties if penalty != trial.word_penalty]


def other_beams(settings: Decode, trial: Trial) -> list[Trial]:
    """`trial` with each other beam."""
    return [replace(trial, beam=beam) for beam in dict.fromkeys(_beams(settings, trial.method)) if beam != trial.beam]


def _beams(settings: Decode, method: str) -> tuple[float, ...]:
    own = settings_of(settings, method)
    return tuple(map(float, getattr(own, "beam_sizes", getattr(own, "beams", ()))))


def rescore_trials(settings: Decode, beam: float, neural: bool) -> list[Trial]:
    """All weights of rescoring the lattices of `beam`; one of the neural language model only where there is one."""
    own = settings_of(settings, "rescore")
    nnlm_weights = own.nnlm_weights if neural else (0.0,)
    combined = itertools.product(own.lm_weights, own.word_penalties, nnlm_weights)
    return [Trial("rescore", weight, penalty, beam, nnlm) for weight, penalty, nnlm in dict.fromkeys(combined)]


def count_errors(text: str, words: Sequence[str]) -> Counts:
    """Errors of `words` against a transcript, both without the tags, which no ctm holds."""
    return align_words([word for word in text.split() if is_spoken(word)], list(filter(is_spoken, words))).counts


def count_rescored(texts: Iterable[str], lists: Iterable[ScoredList], trials: Sequence[Trial]) -> list[Result]:
    """Word errors of what each of `trials` takes from the n-best `lists` of utterances with these transcripts."""
    counts: list[list[Counts]] = [[] for _ in trials]
    for scored, text in zip(lists, texts, strict=True):
        of_sentence: dict[tuple[str, ...], Counts] = {}
        for number, trial in enumerate(trials):
            best = scored.best(trial)
            sentence = best.sentence if best else ()
            if sentence not in of_sentence:
                of_sentence[sentence] = count_errors(text, sentence)
            counts[number].append(of_sentence[sentence])
    return [Result(trial, total(summands)) for trial, summands in zip(trials, counts, strict=True)]


def choose_trials(results: Iterable[Result]) -> dict[str, Trial]:
    """The trial with the fewest errors of each method.

    Among equals the narrowest beam, then the lowest weight of the neural language model, then the word penalty nearest
    to zero, then the lowest weight of the n-gram.
    """
    best: dict[str, Trial] = {}
    for result in sorted(results, key=_rank):
        best.setdefault(result.trial.method, result.trial)
    return best


def _rank(result: Result) -> tuple[float, ...]:
    trial = result.trial
    return (result.counts.err, trial.beam, trial.nnlm_weight, abs(trial.word_penalty), trial.lm_weight)


def format_tuning(results: Iterable[Result], chosen: Mapping[str, Trial]) -> str:
    """A table of all trials: method, weights, words, errors by kind, error rate in percent, whether it was chosen."""
    lines = ["\t".join(("method", *NUMBERS, "words", "sub", "del", "ins", "wer_percent", "chosen")) + "\n"]
    for trial, counts in ((result.trial, result.counts) for result in results):
        settings = trial.settings()
        numbers = [f"{settings[name]:g}" if name in settings else "-" for name in NUMBERS]
        rate = "-" if counts.wer is None else f"{counts.wer:.2f}"
        errors = [str(count) for count in (counts.num_words, counts.sub, counts.del_, counts.ins)]
        lines.append(
            "\t".join((trial.method, *numbers, *errors, rate, "yes" if chosen[trial.method] == trial else "no")) + "\n"
        )
    return "".join(lines)
