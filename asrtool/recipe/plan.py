"""Choose the stages of a run, and find their states."""

from __future__ import annotations

from collections.abc import Sequence

from asrtool.errors import AsrtoolError
from asrtool.recipe.stage import Stage, lies_in, number_stages
from asrtool.recipe.state import DONE, OFF, Run, State, stage_state
from asrtool.settings.values import nearest


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
    names = [stage.name for stage in stages]
    if wanted in names:
        return names.index(wanted)
    numbers = number_stages(stages)
    if wanted in numbers:
        return numbers.index(wanted)
    hint = nearest(wanted, names) or f"known are 0 to {numbers[-1]} or {', '.join(names)}"
    raise AsrtoolError(f"{wanted}: no such stage", hint)


def plan(run: Run, chosen: range) -> list[State]:
    """Return the state of each chosen stage.

    A stage that reads what another one will make again is stale, too.
    """
    states: list[State] = []
    for i in chosen:
        stage = run.recipe.stages[i]
        state = stage_state(run, stage)
        if state == DONE:
            makers = [
                run.recipe.stages[j] for j, earlier in zip(chosen, states, strict=False) if earlier not in (DONE, OFF)
            ]
            after = [maker.name for maker in makers if reads_from(stage, maker)]
            state = State("stale", f"after {after[-1]}") if after else DONE
        states.append(state)
    return states


def reads_from(stage: Stage, maker: Stage) -> bool:
    """Return whether `stage` needs an output of `maker`."""
    return any(lies_in(need, made) for need in stage.needs for made in maker.makes)


def maker_of(stages: Sequence[Stage], need: str) -> Stage | None:
    """The stage that makes `need`."""
    return next((stage for stage in stages if any(lies_in(need, made) for made in stage.makes)), None)
