"""Plans of calls: voices of each set, pairs of speakers, and durations.

Training and both halves of test sets share no variant of a voice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np

from asrtool.local.mini.espeak import Voice
from asrtool.local.mini.grammar import MARKS
from asrtool.local.mini.telephone import LineQuality


@dataclass(frozen=True)
class Pool:
    """Variants and accents to draw voices from."""

    variants: tuple[str, ...]  # a repeated variant is drawn twice as often
    accents: tuple[str, ...]
    rates_wpm: tuple[int, int]


WOMEN = (
    *("f1", "f2", "f3", "f4", "f5", "Alicia", "Andrea", "Annie", "aunty", "belinda", "grandma", "linda", "shelby"),
    "steph2",
)
# Left out everywhere: whispering, croaking and robotic variants, and those a model of the others hardly understands.
TRAIN = Pool(
    (
        *("m1", "f1", "m3", "f2", "m4", "f4", "m7", "Alicia", "Alex", "belinda", "rob", "Andrea", "Michael", "shelby"),
        *("klatt4", "grandma", "adam", "Annie", "max", "Mike", "edward", "john", "grandpa", "travis", "Gene", "f1"),
        *("victor", "f4", "klatt6", "f2", "marcelo", "m8", "Denis", "miguel"),
    ),
    ("en-US", "en-US", "en-US", "en-US", "en"),
    (150, 190),
)
SWITCHBOARD = Pool(("m6", "f3", "m2", "aunty", "robert", "steph2", "paul"), ("en-US",), (150, 185))
CALLHOME = Pool(
    ("m5", "f5", "Mario", "edward2", "linda", "benjamin", "michel"),
    ("en-US-nyc", "en-GB-x-rp", "en-US-nyc", "en-US"),
    (155, 190),
)


@dataclass(frozen=True)
class Call:
    """Parameters of a conversation, and the place of its audio in the corpus."""

    audio: PurePosixPath
    voices: tuple[Voice, Voice]
    speakers: tuple[int, int]
    speech_s: float
    quality: LineQuality
    seed: tuple[int, ...]
    marks: tuple[str, ...] = MARKS

    @property
    def name(self) -> str:
        return self.audio.stem


def draw_voices(pool: Pool, rng: np.random.Generator) -> Iterator[Voice]:
    """Yield voices without end, no two alike in variant, accent, pitch and rate."""
    seen: set[Voice] = set()
    while True:
        variant = pool.variants[len(seen) % len(pool.variants)]
        accent = pool.accents[len(seen) % len(pool.accents)]
        sex = "F" if variant in WOMEN else "M"
        voice = Voice(accent, variant, sex, int(rng.integers(35, 66)), int(rng.integers(*pool.rates_wpm)))
        if voice not in seen:
            seen.add(voice)
            yield voice


def pair_speakers(num_conversations: int) -> list[tuple[int, int]]:
    """Pair speakers: groups of three hold two conversations among themselves.

    So some conversations can be held out with all their speakers.
    """
    pairs = []
    for group in range((num_conversations + 1) // 2):
        pairs += [(3 * group, 3 * group + 1), (3 * group + 2, 3 * group)]
    return pairs[:num_conversations]


def split_evenly(speech_s: float, aim_s: float, at_least: int) -> tuple[int, float]:
    """Return a number of calls of about `aim_s` for `speech_s`, and their speech."""
    num_calls = max(at_least, round(speech_s / aim_s))
    return num_calls, speech_s / num_calls


def plan_training(
    audio: Sequence[str], call_s: float, quality: LineQuality, seed: tuple[int, int], first_speaker: int
) -> list[Call]:
    """Plan a call with `call_s` seconds of speech for each file of `audio`."""
    pairs = pair_speakers(len(audio))
    voices = draw_voices(TRAIN, np.random.default_rng(seed))
    people = [next(voices) for _ in range(max(map(max, pairs)) + 1)]
    calls = []
    for index, (a, b) in enumerate(pairs):
        pair, speakers = (people[a], people[b]), (first_speaker + a, first_speaker + b)
        calls.append(Call(PurePosixPath(audio[index]), pair, speakers, call_s, quality, (*seed, index)))
    return calls
