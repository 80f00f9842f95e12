"""Which code a command runs, for what it writes."""

from __future__ import annotations

from collections.abc import Iterable

from asrtool.config import Config
from asrtool.recipe.source import Entry, chosen_modules, code_digests, combined_digest


def code_of(entry: Entry, config: Config, sections: Iterable[str]) -> str:
    """The digest of all sources that the command at `entry` and the components that `sections` choose can import."""
    return combined_digest(code_digests([entry], chosen_modules(config, sections)))
