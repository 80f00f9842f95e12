"""What is said of a file of weights that is none, or damaged."""

from __future__ import annotations

from pathlib import Path

from asrtool.errors import AsrtoolError


def unreadable(path: Path | str, kind: str, error: OSError) -> AsrtoolError:
    """The error for a file of that `kind` that cannot be read."""
    if isinstance(error, IsADirectoryError):
        return AsrtoolError(
            f"{path}: is a folder, expected a {kind}", "name the file, in a work folder average/model.pt"
        )
    return AsrtoolError(f"{path}: cannot be read, {error.strerror}", "check the path")


def damaged(path: Path | str, kind: str) -> AsrtoolError:
    """The error for a file of that `kind` whose digest does not match."""
    return AsrtoolError(f"{path}: no {kind}, or a damaged one: its checksum does not match", hint_for(kind))


def hint_for(kind: str) -> str:
    """What to do about a damaged one."""
    return f"make the {kind} again, or copy it again from where it is whole"
