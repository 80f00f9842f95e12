"""Settings of a scenario from the records of a training."""

from __future__ import annotations

from pathlib import Path


def settings_of(work: Path) -> list[str]:
    raise NotImplementedError
