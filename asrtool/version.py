"""Version of this code."""

from __future__ import annotations

import importlib.metadata
import subprocess
from pathlib import Path

try:
    __version__ = importlib.metadata.version("asrtool")
except importlib.metadata.PackageNotFoundError:  # a copy of the sources
    __version__ = "of unknown version"


def release() -> str:
    """Return name and version, as installed."""
    return f"asrtool {__version__}"


def commit() -> str:
    """Return the commit of the checkout, marked if files differ; else the version."""
    here = Path(__file__)
    try:
        # Fails for a package installed in another project's folder, whose commit is not of this code.
        _git(here.parent, "ls-files", "--error-unmatch", here.name)
        return _git(here.parent, "describe", "--always", "--dirty", "--abbrev=12")
    except (OSError, subprocess.CalledProcessError):
        return f"unknown, {release()} lies in no git checkout"


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=True).stdout.strip()
