"""Change a tuple of stages by name, for recipes that share most of them."""

from __future__ import annotations

from collections.abc import Sequence

from asrtool.errors import AsrtoolError
from asrtool.recipe.stage import Stage
from asrtool.settings.values import nearest

Stages = tuple[Stage, ...]


def replace(stages: Sequence[Stage], stage: Stage) -> Stages:
    """Return `stages` with `stage` in place of the one of its name.

    Raises AsrtoolError if no stage has that name.
    """
    at = _position(stages, stage.name)
    return (*stages[:at], stage, *stages[at + 1 :])


def insert(stages: Sequence[Stage], stage: Stage, after: str) -> Stages:
    """Return `stages` with `stage` after the one called `after`.

    Raises AsrtoolError if there is no such stage, or already one with the name of `stage`.
    """
    if stage.name in [other.name for other in stages]:
        raise AsrtoolError(f"insert: there is a stage {stage.name} already", "replace it, or choose another name")
    at = _position(stages, after) + 1
    return (*stages[:at], stage, *stages[at:])


def drop(stages: Sequence[Stage], *names: str) -> Stages:
    """Return `stages` without `names`; AsrtoolError for an unknown name."""
    positions = {_position(stages, name) for name in names}
    return tuple(stage for at, stage in enumerate(stages) if at not in positions)


def _position(stages: Sequence[Stage], name: str) -> int:
    names = [stage.name for stage in stages]
    if name not in names:
        raise AsrtoolError(f"{name}: no such stage", nearest(name, names) or f"the stages are {', '.join(names)}")
    return names.index(name)
