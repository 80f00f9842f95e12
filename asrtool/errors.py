"""AsrtoolError: the one exception for errors that a user can fix."""

from __future__ import annotations

import importlib


class AsrtoolError(Exception):
    """Error that a user can fix: bad input, a wrong path, an unknown setting.

    `what` is the fault and its place (file, line or id; found and expected); `hint` is what to do next. Printed
    as ``error: what; hint`` with `exit_code`.
    """

    exit_code = 1  # of the process; the launcher of learners sets another one in them

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what = printable(what)
        self.hint = printable(hint)

    def __str__(self) -> str:
        return f"{self.what}; {self.hint}" if self.hint else self.what


def printable(text: str) -> str:
    """Escape bytes of `text` that are not UTF-8, such as in file names."""
    return text.encode(errors="backslashreplace").decode()


def require(package: str, needed_by: str, hint: str) -> None:
    """Raise AsrtoolError unless `package`, `needed_by` an option, can be imported."""
    try:
        importlib.import_module(package)
    except ImportError as error:
        what = f"{needed_by} needs the package {package}, which cannot be imported here ({error})"
        raise AsrtoolError(what, hint) from error


def require_k2(setting: str) -> None:
    """Raise AsrtoolError, naming `setting`, unless k2 can be imported."""
    require("k2", setting, "use .venv-k2/bin/asrtool, which `make test-k2` makes, or leave this setting out")
