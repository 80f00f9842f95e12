"""Choose the decoding parameters of each method by its word errors on dev.

The axes of a method are varied in turn, earlier ones as chosen and later ones at their start. If an end of a list of
weights is best, weights beyond it are tried. A method that is tuned jointly tries all combinations. A method follows
the one it is based on. Reads a model file and the features of dev, writes `tuning.tsv` (all trials) and `tuning.json`
(the choice).
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from asrtool.decode.acoustic_model import load_searched_model
from asrtool.decode.decode import start_decoder
from asrtool.decode.decoder import Decoded
from asrtool.decode.forward import open_features
from asrtool.decode.parameters import Axis, DecodingParameters, combine, format_parameters
from asrtool.decode.resources import Resources
from asrtool.decode.search.method import SearchMethod, bases_first, make_methods
from asrtool.decode.words import is_spoken
from asrtool.files import write_folder
from asrtool.score.align import align_words
from asrtool.score.result import Counts, total
from asrtool.settings.config import Config

COLUMNS = ("lm_weight", "word_penalty", "beam", "nnlm_weight")  # columns of every table, for comparisons
Axes = Mapping[str, Sequence[Axis]]
Results = dict[DecodingParameters, Counts]  # word errors on the development set, in the order of the trials


def tune_run(model: Path, features: Path, out: Path, folders: Mapping[str, Path | None], config: Config) -> str:
    """Tune all methods on the set `features`; return the table of all trials.

    Writes the folder `out`. Methods need some of `folders` (settings.SEARCHED). The acoustic model is applied once.
    Raises AsrtoolError if an input is missing or broken, or if inputs do not belong together.
    """
    acoustic = load_searched_model(model, config.decode)
    resources = Resources(acoustic, folders, config)
    methods = make_methods(config.decode, resources)
    reader = open_features(features, acoustic)
    values = {name: {axis.name: axis.values for axis in method.axes()} for name, method in methods.items()}
    with (
        write_folder(out, "tuning.json") as folder,
        start_decoder(methods, resources, values, keep=folder) as decoder,
    ):

        def count(parameters: Sequence[DecodingParameters]) -> Results:
            found: Results = {}
            for some in group_trials(methods, parameters):
                decoded = decoder.decode(reader, some, f"dev, {len(some)} combinations")
                found.update(_count(decoded))
            return {each: found[each] for each in parameters}

        results, chosen = tune_methods(methods, count)
        table = format_tuning(results, chosen)
        (folder / "tuning.tsv").write_text(table, encoding="utf-8")
        (folder / "tuning.json").write_text(format_parameters(chosen[name] for name in methods), encoding="utf-8")
    return table


def group_trials(
    methods: Mapping[str, SearchMethod], parameters: Sequence[DecodingParameters]
) -> list[list[DecodingParameters]]:
    """Group `parameters` so that none has two values of a one-at-a-time axis."""
    groups: list[list[DecodingParameters]] = []
    values: dict[str, list[float]] = {}
    for each in parameters:
        axis = methods[each.method].one_at_a_time
        own = values.setdefault(each.method, [])
        value = each[axis] if axis else 0.0
        if value not in own:
            own.append(value)
        groups += [[] for _ in range(len(own) - len(groups))]
        groups[own.index(value)].append(each)
    return groups


def _count(decoded: Decoded) -> Iterator[tuple[DecodingParameters, Counts]]:
    texts = [utterance.transcript for utterance in decoded.utterances]
    count = functools.cache(count_errors)  # most weights choose the same sentence of an n-best list
    for parameters, found in decoded.words.items():
        texts_found = (tuple([word.text for word in words]) for words in found)
        counts = total(map(count, texts, texts_found))
        logging.info("dev, %s: %d errors in %d words", parameters, counts.err, counts.num_words)
        yield parameters, counts


def tune_methods(
    methods: Mapping[str, SearchMethod], count: Callable[[Sequence[DecodingParameters]], Results]
) -> tuple[Results, dict[str, DecodingParameters]]:
    """Return all trials in order and the best ones; `count` counts word errors."""
    axes = {name: method.axes() for name, method in methods.items()}
    results: Results = {}
    for group in bases_first(methods):
        for number in range(max([1, *(len(axes[method.name]) for method in group)])):
            parameters = [each for method in group for each in tried(method, number, choose(results, axes))]
            while parameters:
                results |= count(parameters)
                parameters = [each for method in group for each in beyond(method, number, results)]
    return results, choose(results, axes)


def tried(method: SearchMethod, number: int, best: Mapping[str, DecodingParameters]) -> list[DecodingParameters]:
    """Return the trials of `method` in round `number`, which varies that axis.

    `best` is the choice so far.
    """
    axes, base = method.axes(), best.get(method.based_on)
    if number == 0:
        at_start = [Axis(axis.name, (axis.first(base),)) for axis in axes[1:]]
        return combine(method.name, axes if method.jointly else [*axes[:1], *at_start], base)
    if method.jointly or number >= len(axes):
        return []
    axis, chosen = axes[number], best[method.name]
    return [chosen.vary(**{axis.name: value}) for value in axis.tried(base) if value != chosen[axis.name]]


def beyond(method: SearchMethod, number: int, results: Results) -> list[DecodingParameters]:
    """Return the next trial of an axis if one of its ends alone has the fewest errors.

    It is as far from the end as the value before.
    """
    axes = method.axes()
    if method.jointly or number >= len(axes) or not axes[number].grows:
        return []
    axis, own = axes[number], {each: counts for each, counts in results.items() if each.method == method.name}
    best = choose(own, {method.name: axes})[method.name]
    errors = {each[axis.name]: own[each].err for each in own if each == best.vary(**{axis.name: each[axis.name]})}
    by_errors, by_value = sorted(errors, key=errors.__getitem__), sorted(errors)
    if len(errors) < 2 or errors[by_errors[0]] == errors[by_errors[1]]:
        return []
    for end, before in (by_value[:2], by_value[:-3:-1]):
        further = round(2 * end - before, 6)
        if end == by_errors[0] and axis.admits(further):
            return [best.vary(**{axis.name: further})]
    return []


def count_errors(text: str, words: Sequence[str]) -> Counts:
    """Count errors of `words` against a transcript, both without tags."""
    return align_words([word for word in text.split() if is_spoken(word)], list(filter(is_spoken, words))).counts


def choose(results: Results, axes: Axes) -> dict[str, DecodingParameters]:
    """Return the parameters with fewest errors; in ties the last axis decides first."""
    best: dict[str, DecodingParameters] = {}
    for parameters in sorted(results, key=lambda each: _rank(each, results[each], axes[each.method])):
        best.setdefault(parameters.method, parameters)
    return best


def _rank(parameters: DecodingParameters, counts: Counts, axes: Sequence[Axis]) -> tuple[float, ...]:
    return (counts.err, *(axis.prefer(parameters[axis.name]) for axis in reversed(axes)))


def format_tuning(results: Results, chosen: Mapping[str, DecodingParameters]) -> str:
    """Format all trials: method, parameters, words, errors by kind, rate, choice."""
    named = [*COLUMNS, *(name for parameters in results for name in parameters.values())]
    columns = list(dict.fromkeys(named))
    lines = ["\t".join(("method", *columns, "words", "sub", "del", "ins", "wer_percent", "chosen")) + "\n"]
    for parameters, counts in results.items():
        values = parameters.values()
        numbers = [f"{values[name]:g}" if name in values else "-" for name in columns]
        rate = "-" if counts.wer is None else f"{counts.wer:.2f}"
        errors = [str(count) for count in (counts.num_words, counts.sub, counts.del_, counts.ins)]
        yes = "yes" if chosen[parameters.method] == parameters else "no"
        lines.append("\t".join((parameters.method, *numbers, *errors, rate, yes)) + "\n")
    return "".join(lines)
