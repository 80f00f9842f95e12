"""The labels of segments, as the stm declares them: NIST's scorer fails on others, and so does this one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from asrtool.score.lines import lower
from asrtool.score.stm import read_stm


class Labels:
    """Those of the stm `ref`. A label stands at one place of all that a segment has, which is its category."""

    def __init__(self, ref: Path | str, declared: Iterable[str]) -> None:
        self._ref = ref
        self._declared = {lower(label): label for label in declared}
        self._places: dict[str, int] = {}
        self._known: dict[str, tuple[str, ...]] = {"": ()}

    def read(self, names: str) -> tuple[str, ...]:
        """Those of ``LABEL,LABEL``; raises AsrtoolError for one that is not declared or stands at two places."""
        if names not in self._known:
            found = [self._find(name, place, names) for place, name in enumerate(names.split(","), 1) if name]
            self._known[names] = tuple(found)
        return self._known[names]

    def _find(self, name: str, place: int, names: str) -> str:
        key = lower(name)
        if key not in self._declared:
            self._fail(names, f"label {name!r} is not declared", f';; LABEL "{name}" "TITLE" "DESCRIPTION" in the file')
        before = self._places.setdefault(key, place)
        if before != place:
            what = f"label {name!r} at place {place} of <{names}>, before at place {before}"
            self._fail(names, what, "each label at one place")
        return self._declared[key]

    def _fail(self, names: str, what: str, expected: str) -> NoReturn:
        segments = read_stm(self._ref)
        next(segment for segment in segments if ",".join(segment.labels) == names).place.fail(what, expected)
