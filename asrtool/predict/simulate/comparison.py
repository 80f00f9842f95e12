"""What a comparison says: a table, and sentences that a person can act on."""

from __future__ import annotations

from collections.abc import Sequence

from asrtool.predict.simulate.compare import TITLES, Row
from asrtool.predict.simulate.outcome import PARTS
from asrtool.predict.simulate.settings import Uncertain
from asrtool.report.markdown import Table

SHARE = 0.02  # of the time, from which on a cause is worth a sentence


def describe(rows: Sequence[Row], uncertain: Uncertain) -> str:
    """Both, and what intervals come of."""
    text = f"{table(rows).to_markdown()}\n\n{answer(rows)}"
    if all(low == high for low, high in (row.interval_s for row in rows)):
        return text
    ends = " to ".join(", ".join(end) or "as it is" for end in (uncertain.low, uncertain.high))
    why = f", since {uncertain.why} is not known" if uncertain.why else ""
    return f"{text}\nTimes are intervals, {ends}{why}; all else is of the scenario as it is."


def table(rows: Sequence[Row]) -> Table:
    """Percentages are of the time of all learners."""
    has_published = any(row.published_h for row in rows)
    cells = []
    for row in rows:
        outcome = row.outcome
        fractions = [f"{100 * outcome.fraction(part):.1f}" for part in PARTS]
        staleness = f"{outcome.staleness.sum() / max(1, outcome.steps.sum()):.1f}"
        speeds = [
            f"{outcome.samples_per_s:.4g}",
            f"{row.speedup:.3g}",
            f"{100 * row.speedup / outcome.num_learners:.0f}",
        ]
        published = [f"{row.published_h:g}" if row.published_h else "-"] if has_published else []
        first = [outcome.strategy, outcome.num_learners, interval(row), *published]
        cells.append([*first, *speeds, *fractions, staleness])
    head = ["strategy", "learners", "time", *(["published hours"] if has_published else [])]
    head += ["samples/s", "speed-up", "% of linear", *(f"% {TITLES[part]}" for part in PARTS), "staleness"]
    return Table(head, cells)


def duration(seconds: float) -> str:
    """As a person would say it."""
    unit, length = _unit(seconds)
    return f"{seconds / length:.3g} {unit}"


def interval(row: Row) -> str:
    """How long the training takes, from and to where that is uncertain."""
    low_s, high_s = row.interval_s
    unit, length = _unit(high_s)
    found = [f"{seconds / length:.3g}" for seconds in dict.fromkeys((low_s, high_s))]
    return f"{' to '.join(found)} {unit}"


def _unit(seconds: float) -> tuple[str, int]:
    """In which it is said, and its seconds."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length or (unit == "h" and seconds >= length):
            return unit, length
    return "s", 1


def answer(rows: Sequence[Row]) -> str:
    """Sentences: which strategy is the fastest for each number of learners, and what the others lose their time to."""
    numbers = dict.fromkeys(row.outcome.num_learners for row in rows)
    return "\n".join(_of_number([row for row in rows if row.outcome.num_learners == number]) for number in numbers)


def _of_number(rows: Sequence[Row]) -> str:
    number = rows[0].outcome.num_learners
    bound = next((row for row in rows if row.outcome.strategy == "none" and len(rows) > 1), None)
    ordered = sorted((row for row in rows if row is not bound), key=lambda row: row.outcome.seconds)
    best = ordered[0]
    sentences = [
        f"{number} learner{'s' if number > 1 else ''}: {best.outcome.strategy} takes {interval(best)},"
        f" {best.speedup:.3g} times as fast as one."
    ]
    sentences += filter(None, map(_cause, ordered))
    if bound:
        sentences.append(f"Without any communication it would be {interval(bound)}.")
    return " ".join(sentences)


def _cause(row: Row) -> str:
    """What a strategy loses most of its time to, where that is worth a sentence."""
    outcome = row.outcome
    learner, blamed = outcome.blame()
    wait = outcome.fraction("wait_s")
    name, took = outcome.strategy, f"({interval(row)})"
    text = ""
    if blamed > SHARE and blamed > 0.5 * wait:
        text = f"{name} waits {100 * blamed:.0f} % of the time for learner {learner} {took}."
    elif wait > SHARE and outcome.blamed_s.sum() > 0.5 * outcome.wait_s.sum():
        text = f"{name} waits {100 * wait:.0f} % of the time for whoever is slowest {took}."
    elif wait > SHARE:
        text = f"{name} waits {100 * wait:.0f} % of the time for messages {took}."
    elif outcome.fraction("data_s") > SHARE:
        text = f"{name} waits {100 * outcome.fraction('data_s'):.0f} % of the time for data {took}."
    if outcome.skipped.sum() > outcome.steps.sum() / 2:
        share = 100 * outcome.skipped.sum() / outcome.steps.sum()
        text += f" {name} skips {share:.0f} % of its exchanges, for which the links are too slow."
    if outcome.num_losses:
        what = f"repeats {outcome.num_repeated:,} batches" if outcome.num_repeated else "continues with the others"
        losses = f"{outcome.num_losses} losses" if outcome.num_losses > 1 else "a loss"
        text += f" After {losses} {name} {what}."
    return text.strip()
