"""Output of `asrtool run`: states of stages, command lines, and the outcome."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Sequence

from asrtool.recipe.plan import plan
from asrtool.recipe.stage import Stage, number_stages
from asrtool.recipe.state import DONE, OFF, Run

RESULTS = "RESULTS.md"


def format_states(run: Run, chosen: range) -> str:
    """One line a stage: number, name, state, and why it is not done."""
    numbers = number_stages(run.recipe.stages)
    lines = [f"recipe {run.recipe.folder}, work {run.work}"]
    for i, state in zip(chosen, plan(run, chosen), strict=True):
        lines.append(f"{numbers[i]:>2} {run.recipe.stages[i].name:<12} {state.word:<6} {state.why}".rstrip())
    return "\n".join(lines)


def format_commands(run: Run, chosen: range, force: bool) -> str:
    """Format the command lines that a run would call, ready to type.

    With `force` also of done stages.
    """
    numbers = number_stages(run.recipe.stages)
    lines = []
    for i, state in zip(chosen, plan(run, chosen), strict=True):
        stage = run.recipe.stages[i]
        if state == OFF or (state == DONE and not force):
            lines.append(f"# {numbers[i]} {stage.name}: {state.word}")
            continue
        lines.append(f"# {numbers[i]} {stage.name}: {stage.why}")
        lines += [shlex.join(run.words(stage, line)) for line in run.lines(stage)]
    return "\n".join(lines)


def format_outcome(run: Run, chosen: range, ran: Sequence[str]) -> str:
    """Format the tables of results if the report was made; else name the stages."""
    outcome = f"ran {', '.join(ran)}" if ran else _nothing_to_do(run, [run.recipe.stages[i] for i in chosen])
    results = run.work / RESULTS
    if not any(RESULTS in run.recipe.stages[i].makes for i in chosen):
        return outcome
    tables = first_section(results.read_text(encoding="utf-8"))
    return f"{outcome}\n\n{tables}\n\n{results}"


def _nothing_to_do(run: Run, stages: Sequence[Stage]) -> str:
    done = [stage.name for stage in stages if not run.is_off(stage)]
    if done:
        return f"nothing to do, done: {', '.join(done)}; --force runs again"
    return f"nothing to do, off: {', '.join(f'{stage.name} ({_why_off(stage)})' for stage in stages)}"


def _why_off(stage: Stage) -> str:
    return f"--set {stage.when}=true turns it on" if stage.when else "no component that is chosen needs it"


def first_section(markdown: str) -> str:
    """Return the text between the title and the next heading of a Markdown text."""
    below = itertools.dropwhile(lambda line: line.startswith("# ") or not line, markdown.splitlines())
    return "\n".join(itertools.takewhile(lambda line: not line.startswith("## "), below)).strip()
