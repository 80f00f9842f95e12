"""Names of copies at other speeds: sp0.9-ID of sp0.9-SPEAKER."""

from __future__ import annotations

import functools
import re

from asrtool.corpus.settings import FASTEST, SLOWEST

COPY = re.compile(r"sp([0-9.]+)-")  # before id and speaker


def copy_prefix(name: str, speaker: str) -> str:
    """What stands before id and speaker of a copy at another speed; empty where these are of no copy.

    It is as asrtool.corpus.flac.copy_id writes it: speakers may be called sp01-f and sp1-m.
    """
    match = COPY.match(name)
    return match[0] if match and speaker.startswith(match[0]) and _is_speed(match[1]) else ""


@functools.lru_cache
def _is_speed(text: str) -> bool:
    try:
        speed = float(text)
    except ValueError:
        return False
    return f"{speed:g}" == text and speed != 1 and SLOWEST <= speed <= FASTEST
