"""Packages that only some settings need."""

from __future__ import annotations

import importlib

from asrtool.errors import AsrtoolError


def require_k2(setting: str) -> None:
    """Raise AsrtoolError unless k2 can be imported, naming the `setting` (``section.key = value``) that needs it."""
    try:
        importlib.import_module("k2")
    except ImportError as error:
        raise AsrtoolError(
            f"{setting} needs the package k2, which cannot be imported here ({error})",
            "use .venv-k2/bin/asrtool, which `make test-k2` makes, or leave this setting out",
        ) from error
