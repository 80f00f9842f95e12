"""Small slips in the code, each of which a test has to notice: those of a room in the module of its name.

`run.py` applies them one by one.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass


@dataclass(frozen=True)
class Patch:
    """A slip: `find`, which `file` has exactly once, becomes `replace`; pytest is given `tests`, which fail then."""

    name: str
    file: str
    find: str
    replace: str
    tests: tuple[str, ...]

    def apply(self, text: str) -> str:
        """The text of `file` with the slip. Raises ValueError where it does not have `find` once."""
        if (num := text.count(self.find)) != 1:
            raise ValueError(f"{self.name}: {self.file} has {num} times, not once: {self.find!r}")
        return text.replace(self.find, self.replace)


BY_ROOM: dict[str, tuple[Patch, ...]] = {
    room: importlib.import_module(f"{__name__}.{room}").PATCHES
    for room in sorted(module.name for module in pkgutil.iter_modules(__path__))
}
PATCHES = tuple(patch for patches in BY_ROOM.values() for patch in patches)
