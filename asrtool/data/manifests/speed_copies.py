"""Copies at other speeds: choose the speeds, and name them (sp0.9-ID)."""

from __future__ import annotations

import dataclasses
import functools
import logging
import re
from pathlib import Path

from asrtool.errors import AsrtoolError
from asrtool.settings.data import MAX_SPEED, MIN_SPEED, Features

COPY = re.compile(r"sp([0-9.]+)-")  # before id and speaker
SMALL_SET_H = 0.5  # a set with less speech has few speakers; a voice at another speed is like another voice
SMALL_SET_SPEEDS = (0.8, 0.9, 1.0, 1.1, 1.2)


def with_speeds(features: Features, hours: float) -> Features:
    """Choose speeds for the hours of training if `features` has none; log them."""
    if features.speeds:
        return features
    speeds = SMALL_SET_SPEEDS if hours < SMALL_SET_H else Features.speeds
    logging.info("features.speeds is []: %s, for %.3g h to train on", ", ".join(f"{s:g}" for s in speeds), hours)
    return dataclasses.replace(features, speeds=speeds)


def copy_id(name: str, speed: float) -> str:
    """Return the id of an utterance or speaker at `speed`."""
    return name if speed == 1 else f"sp{speed:g}-{name}"


def copy_prefix(name: str, speaker: str) -> str:
    """Return the prefix of a copy's id and speaker, as copy_id writes it, or ''.

    Speakers may be called sp01-f and sp1-m.
    """
    match = COPY.match(name)
    return match[0] if match and speaker.startswith(match[0]) and _is_speed(match[1]) else ""


def refuse_copy(where: Path, name: str, speaker: str) -> None:
    """Raise AsrtoolError if an utterance has the id of a speed copy."""
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
    return f"{speed:g}" == text and speed != 1 and MIN_SPEED <= speed <= MAX_SPEED
