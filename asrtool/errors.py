"""The one exception a person's mistake raises; the command line turns it into one line."""

from __future__ import annotations

import importlib


class AsrtoolError(Exception):
    """Something a person can fix: bad input, a wrong path, a setting that does not exist.

    `what` says what is wrong and where (file, line or id; found and expected);
    `hint` says what to do next. Printed as ``error: what; hint`` with exit code 1.
    """

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what = printable(what)
        self.hint = printable(hint)

    def __str__(self) -> str:
        return f"{self.what}; {self.hint}" if self.hint else self.what


def printable(text: str) -> str:
    """Return `text` with escapes for what is no UTF-8, such as bytes of another encoding in the name of a file."""
    return text.encode(errors="backslashreplace").decode()


def require_k2(setting: str) -> None:
    """Raise AsrtoolError unless k2 can be imported, naming the `setting` (``section.key = value``) that needs it."""
    try:
        importlib.import_module("k2")
    except ImportError as error:
        raise AsrtoolError(
            f"{setting} needs the package k2, which cannot be imported here ({error})",
            "use .venv-k2/bin/asrtool, which `make test-k2` makes, or leave this setting out",
        ) from error
