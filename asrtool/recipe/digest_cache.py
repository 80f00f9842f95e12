"""SHA-256 digests of files by a 64-bit key, 48 bytes a file, in one array.

The key hashes name, size, times and inode. With a million known files, a changed file meets a known key once in 10^13
times.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asrtool.errors import AsrtoolError
from asrtool.files import write_beside

if TYPE_CHECKING:  # `asrtool run --list` looks at a new work directory without NumPy
    import numpy as np

ROW = [("key", "u8"), ("group", "u8"), ("digest", "V32")]


@dataclass
class Rows:
    """Keys and digests of files that were read together."""

    keys: array[int] = field(default_factory=lambda: array("Q"))
    digests: bytearray = field(default_factory=bytearray)

    def add(self, key: int, digest: str) -> None:
        """`digest` is hexadecimal."""
        self.keys.append(key)
        self.digests += bytes.fromhex(digest)


class DigestCache:
    """The digests in a file, which may be missing or broken: then it has none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._take(_read(path))

    def look_up(self, keys: Sequence[int]) -> list[str | None]:
        """The digest of each of `keys`, hexadecimal; None for one that is not there."""
        if self._rows is None or not keys:
            return [None] * len(keys)
        import numpy as np

        places, known = self._find(np.array(keys, np.uint64))
        found = self._rows["digest"][places]
        return [digest.tobytes().hex() if is_known else None for digest, is_known in zip(found, known, strict=True)]

    def add(self, rows: Rows, group: int, complete: bool) -> None:
        """Write `rows` of a `group`; if `complete`, other rows of the group go.

        Rows of other groups stay. A file that is in another group stays there, so two groups do not rewrite it in
        turns.
        """
        if self._has(rows, group, complete):
            return
        import numpy as np

        new = np.empty(len(rows.keys), ROW)
        new["key"], new["group"] = np.frombuffer(rows.keys, np.uint64), group
        new["digest"] = np.frombuffer(bytes(rows.digests), "V32")
        there = _read(self._path)
        if there is not None:
            is_gone = complete & (there["group"] == group) & ~np.isin(there["key"], new["key"])
            new = np.concatenate([there[~is_gone], new])
        new = new[np.unique(new["key"], return_index=True)[1]]  # of equal keys the first
        with contextlib.suppress(AsrtoolError, OSError), write_beside(self._path) as temporary:
            np.save(temporary, new)  # not where another person's work is only looked at
        self._take(new)

    def _has(self, rows: Rows, group: int, complete: bool) -> bool:
        """Return whether `add` would change nothing, the usual case."""
        if self._rows is None:
            return not rows.keys
        import numpy as np

        keys = np.frombuffer(rows.keys, np.uint64)
        if not self._find(keys)[1].all():
            return False
        return not complete or bool(np.isin(self._keys[self._rows["group"] == group], keys).all())

    def _find(self, keys: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the position of each of `keys`, and whether it is there."""
        import numpy as np

        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return places, self._keys[places] == keys

    def _take(self, rows: np.ndarray[Any, Any] | None) -> None:
        self._rows = rows if rows is not None and len(rows) else None
        if self._rows is not None:
            self._keys = self._rows["key"].copy()  # searching columns of rows copies them each time


def _read(path: Path) -> np.ndarray[Any, Any] | None:
    if not path.exists():
        return None
    import numpy as np

    with contextlib.suppress(OSError, ValueError, EOFError):
        rows = np.load(path)
        if rows.dtype == ROW:
            return rows
    return None
