"""Choose the stages of a run, find their states, and print what it does."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Sequence

from asrtool.errors import AsrtoolError
from asrtool.recipe.stage import Stage, number_stages
from asrtool.recipe.state import DONE, OFF, Run, State, stage_state
from asrtool.settings.values import nearest

RESULTS = "RESULTS.md"


def choose_stages(stages: Sequence[Stage], first: str | None, last: str | None) -> range:
    """Return the positions from `first` to `last`, each a number or a name.

    Raises AsrtoolError for an unknown stage (naming the nearest), and for a first one after the last.
    """
    start = 0 if first is None else _position(stages, first)
    stop = len(stages) - 1 if last is None else _position(stages, last)
    if start > stop:
        raise AsrtoolError(
            f"--stage {first} comes after --stop-stage {last}", f"the order is {', '.join(s.name for s in stages)}"
        )
    return range(start, stop + 1)


def _position(stages: Sequence[Stage], wanted: str) -> int:
    names, numbers = [stage.name for stage in stages], number_stages(stages)
    for known in (names, numbers):
        if wanted in known:
            return known.index(wanted)
    hint = nearest(wanted, names) or f"known are 0 to {numbers[-1]} or {', '.join(names)}"
    raise AsrtoolError(f"{wanted}: no such stage", hint)


def plan(run: Run, chosen: range) -> list[State]:
    """Return the state of each chosen stage.

    A stage that reads what another one will make again is stale, too.
    """
    states: list[State] = []
    will_run: list[Stage] = []
    for stage in run.recipe.stages[chosen.start : chosen.stop]:
        state = stage_state(run, stage)
        after = [maker.name for maker in will_run if stage.reads_from(maker)]
        if state == DONE and after:
            state = State("stale", f"after {after[-1]}")
        if state not in (DONE, OFF):
            will_run.append(stage)
        states.append(state)
    return states


def format_states(run: Run, chosen: range, as_json: bool = False) -> str:
    """Format one line a stage: number, name, state, and reason if it is not done."""
    numbers = number_stages(run.recipe.stages)
    about = {"recipe": str(run.recipe.folder), "work": str(run.work)}
    rows = [
        {"number": numbers[i], "name": run.recipe.stages[i].name, "state": state.word, "why": state.why}
        for i, state in zip(chosen, plan(run, chosen), strict=True)
    ]
    if as_json:
        return json.dumps({**about, "stages": rows})
    lines = ["{number:>2} {name:<12} {state:<6} {why}".format(**row).rstrip() for row in rows]
    return "\n".join(["recipe {recipe}, work {work}".format(**about), *lines])


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
        lines += map(shlex.join, run.commands(stage))
    return "\n".join(lines)


def format_outcome(run: Run, chosen: range, ran: Sequence[str]) -> str:
    """Format the tables of results if the report was made; else name the stages."""
    stages = run.recipe.stages[chosen.start : chosen.stop]
    outcome = f"ran {', '.join(ran)}" if ran else _nothing_to_do(run, stages)
    if not any(RESULTS in stage.makes for stage in stages):
        return outcome
    results = run.work / RESULTS
    return f"{outcome}\n\n{first_section(results.read_text(encoding='utf-8'))}\n\n{results}"


def _nothing_to_do(run: Run, stages: Sequence[Stage]) -> str:
    if done := [stage.name for stage in stages if not run.is_off(stage)]:
        return f"nothing to do, done: {', '.join(done)}; --force runs again"
    why = {
        stage.name: f"--set {stage.when}=true turns it on" if stage.when else "no component that is chosen needs it"
        for stage in stages
    }
    return f"nothing to do, off: {', '.join(f'{name} ({text})' for name, text in why.items())}"


def first_section(markdown: str) -> str:
    """Return the text between the title and the next heading of a Markdown text."""
    below = itertools.dropwhile(lambda line: line.startswith("# ") or not line, markdown.splitlines())
    return "\n".join(itertools.takewhile(lambda line: not line.startswith("## "), below)).strip()
