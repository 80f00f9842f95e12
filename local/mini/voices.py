"""Voices of training and of both halves of test sets, which share no variant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from asrtool.local.mini.espeak import Voice


@dataclass(frozen=True)
class Pool:
    """Variants and accents to draw voices from."""

    variants: tuple[tuple[str, str], ...]  # name, sex; one that stands twice is drawn twice as often
    accents: tuple[str, ...]
    rates_wpm: tuple[int, int]


# Left out everywhere: whispering, croaking and robotic variants, and those a model of the others hardly understands.
TRAIN = Pool(
    (
        ("m1", "M"),
        ("f1", "F"),
        ("m3", "M"),
        ("f2", "F"),
        ("m4", "M"),
        ("f4", "F"),
        ("m7", "M"),
        ("Alicia", "F"),
        ("Alex", "M"),
        ("belinda", "F"),
        ("rob", "M"),
        ("Andrea", "F"),
        ("Michael", "M"),
        ("shelby", "F"),
        ("klatt4", "M"),
        ("grandma", "F"),
        ("adam", "M"),
        ("Annie", "F"),
        ("max", "M"),
        ("Mike", "M"),
        ("edward", "M"),
        ("john", "M"),
        ("grandpa", "M"),
        ("travis", "M"),
        ("Gene", "M"),
        ("f1", "F"),
        ("victor", "M"),
        ("f4", "F"),
        ("klatt6", "M"),
        ("f2", "F"),
        ("marcelo", "M"),
        ("m8", "M"),
        ("Denis", "M"),
        ("miguel", "M"),
    ),
    ("en-US", "en-US", "en-US", "en-US", "en"),
    (150, 190),
)
SWITCHBOARD = Pool(
    (("m6", "M"), ("f3", "F"), ("m2", "M"), ("aunty", "F"), ("robert", "M"), ("steph2", "F"), ("paul", "M")),
    ("en-US",),
    (150, 185),
)
CALLHOME = Pool(
    (
        ("m5", "M"),
        ("f5", "F"),
        ("Mario", "M"),
        ("edward2", "M"),
        ("linda", "F"),
        ("benjamin", "M"),
        ("michel", "M"),
    ),
    ("en-US-nyc", "en-GB-x-rp", "en-US-nyc", "en-US"),
    (155, 190),
)


def draw_voices(pool: Pool, rng: np.random.Generator) -> Iterator[Voice]:
    """Yield voices without end, no two alike in variant, accent, pitch and rate."""
    seen: set[Voice] = set()
    while True:
        variant, sex = pool.variants[len(seen) % len(pool.variants)]
        accent = pool.accents[len(seen) % len(pool.accents)]
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
