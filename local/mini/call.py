"""A call of the mini corpus: who talks, where its audio goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from asrtool.local.mini.conversation import Conversation, Plan
from asrtool.local.mini.espeak import Voice

SPEECH_S = 75.0  # a training call, about


@dataclass(frozen=True)
class Call:
    """Planned conversation, its two speakers, and its audio file in the corpus."""

    plan: Plan
    speakers: tuple[int, int]
    audio: PurePosixPath


@dataclass(frozen=True)
class Recorded:
    """A call that has been held."""

    call: Call
    conversation: Conversation

    @property
    def voices(self) -> tuple[Voice, Voice]:
        return self.call.plan.voices


def split_evenly(speech_s: float, aim_s: float, at_least: int) -> tuple[int, float]:
    """Return how many calls of about `aim_s` make `speech_s`, and the speech of each."""
    num_calls = max(at_least, round(speech_s / aim_s))
    return num_calls, speech_s / num_calls
