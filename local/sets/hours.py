"""Estimate the hours of training speech before they are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from asrtool.data.manifests.manifest import REPORT
from asrtool.data.mix import fractions_of
from asrtool.errors import AsrtoolError
from asrtool.lang.text import extra_files
from asrtool.local.corpus import CORPORA, extra_corpora, with_role
from asrtool.local.releases.shortened import cost_of_decoding
from asrtool.predict.estimate.needs import WORDS_AN_HOUR, DataAmount
from asrtool.recipe.state import read_marker
from asrtool.settings.config import Config, select
from asrtool.settings.values import flatten

BYTES_A_WORD = 5  # bytes of text, with the blank


def data_amount(config: Config, work: Path) -> DataAmount:
    """Return the amount of data of a run, from its manifests or published sizes.

    Raises AsrtoolError for a corpus of unknown size without a manifest.
    """
    report = _report(config, work, "train")
    hours, source = _training_hours(config, work, report)
    is_read = report or is_mini(config)
    shortened = 0 if is_read else sum(corpus.shortened_samples for corpus in with_role(config.data, "train"))
    amount = DataAmount(
        hours,
        source,
        hours_by_corpus=epoch_hours(config, work, hours),
        extra_words=extra_words(config, work),
        decoding=cost_of_decoding(shortened),
    )
    if not {"num_words", "num_utterances"} <= report.keys():
        return amount
    return replace(
        amount, utterance_s=3600 * hours / report["num_utterances"], words_an_hour=report["num_words"] / hours
    )


def _training_hours(config: Config, work: Path, report: Mapping[str, Any]) -> tuple[float, str]:
    """Return hours of speech that a run in `work` trains on, and their source.

    Without a report, the run trains on the mini corpus if the paths of all training releases are explicitly empty;
    otherwise published hours are used.
    """
    if report:
        return float(report["speech_hours"]), f"by {work / 'manifests' / 'train' / REPORT}"
    if is_mini(config):
        return config.mini.train_hours, "of the mini corpus"
    corpora = with_role(config.data, "train")
    unknown = [corpus.name for corpus in corpora if not corpus.train_hours]
    if unknown:
        what = f"how much speech {', '.join(unknown)} has is not known before its manifest is made"
        raise AsrtoolError(what, "run the first two stages, --stop-stage prepare, and estimate then")
    return sum(corpus.train_hours for corpus in corpora), "as published for " + ", ".join(c.name for c in corpora)


def epoch_hours(config: Config, work: Path, hours: float) -> dict[str, float]:
    """Return corpus -> hours in an epoch by data.mix, empty if unknown.

    Uses the corpora's manifests, or published hours and equal utterance lengths.
    """
    corpora = with_role(config.data, "train")
    reports = [_report(config, work, f"{CORPORA}/{corpus.name}/train") for corpus in corpora]
    if all(reports):
        sizes = [(int(report["num_utterances"]), float(report["speech_hours"])) for report in reports]
    elif is_mini(config):
        return {}
    else:
        sizes = [(round(3600 * corpus.train_hours), corpus.train_hours) for corpus in corpora]
    names = [corpus.name for corpus in corpora]
    if not all(num and seconds for num, seconds in sizes):
        return {}
    utterances = {name: num for name, (num, _) in zip(names, sizes, strict=True)}
    tenths_s = {name: round(36000 * seconds) for name, (_, seconds) in zip(names, sizes, strict=True)}
    fractions = fractions_of(config.data.mixing, utterances, tenths_s)
    drawn = {name: sum(utterances.values()) * fractions[name] * tenths_s[name] / utterances[name] for name in names}
    return {name: hours * seconds / sum(tenths_s.values()) for name, seconds in drawn.items()}


def _report(config: Config, work: Path, name: str) -> dict[str, Any]:
    """Return the report of a manifest folder, empty if it is of other corpora."""
    path = work / "manifests" / name / REPORT
    if not path.exists() or not _is_of(config, work):
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _is_of(config: Config, work: Path) -> bool:
    """Return whether `work` was prepared from the corpora and releases of `config`."""
    marker = read_marker(work, "corpus")
    if not marker or "settings" not in marker:
        return True
    recorded = marker["settings"]
    keys = [release.key for corpus in with_role(config.data, "train") for release in corpus.releases]
    now = flatten(select(config, ("data.train",)))
    return now["data.train"] == recorded["data.train"] and all(
        _as_list(config.paths.get(key)) == _as_list(recorded.get(f"paths.{key}")) for key in keys
    )


def _as_list(path: Any) -> list[str] | None:
    """Return a setting of [paths] as a list; None if it is not set."""
    return [path] if isinstance(path, str) else None if path is None else list(path)


def is_mini(config: Config) -> bool:
    """Return whether every training release is explicitly empty."""
    corpora = with_role(config.data, "train")
    keys = [release.key for corpus in corpora for release in corpus.releases]
    return all(corpus.in_mini for corpus in corpora) and all(config.paths.get(key) in ("", ()) for key in keys)


def extra_words(config: Config, work: Path) -> float:
    """Return the words of lm.extra_text, prepared or estimated."""
    corpora = {corpus.name: corpus for corpus in extra_corpora(config.lm.extra_text)}
    words = 0.0
    for name, written in zip(config.lm.extra_text, extra_files(work / "text", config.lm.extra_text), strict=True):
        path = written if written.exists() else Path(name)
        if name in corpora and not written.exists():
            hours = config.mini.train_hours if is_mini(config) else corpora[name].train_hours
            words += hours * WORDS_AN_HOUR
        elif path.exists():
            words += path.stat().st_size / BYTES_A_WORD
    return words
