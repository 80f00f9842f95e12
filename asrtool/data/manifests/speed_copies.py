"""Names of copies at other speeds: sp0.9-ID of sp0.9-SPEAKER."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from asrtool.errors import AsrtoolError
from asrtool.settings.data import FASTEST, SLOWEST

COPY = re.compile(r"sp([0-9.]+)-")  # before id and speaker


def copy_prefix(name: str, speaker: str) -> str:
    """What stands before id and speaker of a copy at another speed; empty where these are of no copy.

    It is as asrtool.data.storage.flac.copy_id writes it: speakers may be called sp01-f and sp1-m.
    """
    match = COPY.match(name)
    return match[0] if match and speaker.startswith(match[0]) and _is_speed(match[1]) else ""


def refuse_copy(where: Path, name: str, speaker: str) -> None:
    """Raise AsrtoolError where the utterance `name` of the set `where` is called as a copy at another speed is."""
    if copy_prefix(name, speaker):
        raise AsrtoolError(
            f"{where}: utterance {name} of speaker {speaker} is called as a copy at another speed would be",
            "rename its speakers, or give the recordings at speed 1, of which features.speeds makes copies",
        )


@functools.lru_cache
def _is_speed(text: str) -> bool:
    try:
        speed = float(text)
    except ValueError:
        return False
    return f"{speed:g}" == text and speed != 1 and SLOWEST <= speed <= FASTEST
