"""Two-sided telephone conversation: turns, pauses, overlaps and back-channels."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from asrtool.local.mini.espeak import SAMPLING_RATE_HZ, Espeak, Voice
from asrtool.local.mini.grammar import Token, add_mark, draw_sentence, spoken_form
from asrtool.local.mini.plan import Call
from asrtool.local.mini.telephone import ALONE, draw_line, make_sound, through_lines

MARK_SHARE = 0.25  # fraction of utterances
BACKCHANNEL_SHARE = 0.3  # fraction of utterances of two seconds and more
SOUND_ONLY_SHARE = 0.03  # a sound alone between two utterances
QUIET = 0.5  # gain of asides and of words no one is sure of
PAUSE_S = 0.6  # between two utterances of a turn, at most


@dataclass(frozen=True)
class Segment:
    """One utterance of a side; times in seconds of the recording."""

    start_s: float
    end_s: float
    tokens: tuple[Token, ...]

    @property
    def has_words(self) -> bool:
        return any(not token.is_sound for token in self.tokens)


@dataclass
class Side:
    """Segments of one speaker so far, in order of time, without overlap."""

    voice: Voice
    segments: list[Segment] = field(default_factory=list)
    sounds: list[tuple[int, np.ndarray]] = field(default_factory=list)  # first sample, samples

    @property
    def free_s(self) -> float:
        """Earliest time in s at which this speaker can speak next."""
        return self.segments[-1].end_s + 0.05 if self.segments else 0.2


@dataclass(frozen=True)
class Conversation:
    """Synthetic call; `greeting_end_s` ends the first turn of both speakers."""

    call: Call
    sides: tuple[tuple[Segment, ...], tuple[Segment, ...]]
    duration_s: float
    greeting_end_s: float

    @property
    def name(self) -> str:
        return self.call.name


def make_conversation(call: Call) -> tuple[Conversation, np.ndarray]:
    """Return the conversation of `call` and int16 audio (num_samples, 2) at 8 kHz.

    The same call gives the same bytes.
    """
    rng = np.random.default_rng(call.seed)
    with Espeak(int(rng.integers(2**31))) as espeak:
        talk = _Talk(espeak, rng, call)
        greeting_end_s = talk.greet()
        while talk.speech_s < call.speech_s:
            talk.take_turn()
    duration_s = max(side.segments[-1].end_s for side in talk.sides) + 0.3
    lines = (draw_line(call.quality, rng), draw_line(call.quality, rng))
    audio = through_lines(_mix(talk.sides, duration_s), lines, rng)
    segments = (tuple(talk.sides[0].segments), tuple(talk.sides[1].segments))
    return Conversation(call, segments, len(audio) / SAMPLING_RATE_HZ, greeting_end_s), audio


def with_whole_turns(conversation: Conversation) -> Conversation:
    """Merge utterances up to the next pause of more than PAUSE_S on a side."""
    turns: tuple[list[Segment], list[Segment]] = ([], [])
    for side, segments in zip(turns, conversation.sides, strict=True):
        for segment in segments:
            if side and segment.start_s - side[-1].end_s <= PAUSE_S:
                side[-1] = Segment(side[-1].start_s, segment.end_s, side[-1].tokens + segment.tokens)
            else:
                side.append(segment)
    return replace(conversation, sides=(tuple(turns[0]), tuple(turns[1])))


def _mix(sides: tuple[Side, Side], duration_s: float) -> np.ndarray:
    """Return the clean speech of both sides, float64 (num_samples, 2)."""
    speech = np.zeros((round(duration_s * SAMPLING_RATE_HZ), 2))
    for column, side in enumerate(sides):
        for first, samples in side.sounds:
            speech[first : first + len(samples), column] += samples
    return speech


class _Talk:
    """Generator of one conversation."""

    def __init__(self, espeak: Espeak, rng: np.random.Generator, call: Call) -> None:
        self.espeak, self.rng = espeak, rng
        self.sides = (Side(call.voices[0]), Side(call.voices[1]))
        self.speech_s, self.aim_s = 0.0, call.speech_s
        self.floor_s = 0.3  # end of the previous turn
        self._turn = int(rng.integers(2))
        self._marks = rng.permutation(call.marks).tolist()  # the mark used longest ago comes first

    def greet(self) -> float:
        """Let both speakers greet; return the end of the greeting in s."""
        for _ in range(2):
            self._turn += 1
            side = self.sides[self._turn % 2]
            words = draw_sentence("greeting", self.rng)
            self.floor_s = self._say(side, list(map(Token, words)), max(side.free_s, self.floor_s + 0.2)).end_s
        return self.floor_s

    def take_turn(self) -> None:
        """Speak one to three utterances; the listener may respond meanwhile."""
        self._turn += 1
        side, listener = self.sides[self._turn % 2], self.sides[1 - self._turn % 2]
        start_s = max(side.free_s, self.floor_s + self.rng.uniform(-0.4, 0.5))
        kinds = ("reply" if self.rng.random() < 0.4 else "turn", "turn", "turn")
        for kind in kinds[: self.rng.integers(1, 4)]:
            if self.rng.random() < SOUND_ONLY_SHARE:
                sound = Token("", ALONE[int(self.rng.integers(len(ALONE)))])
                start_s = self._say(side, [sound], start_s).end_s + 0.2
            segment = self._say(side, self._marked(draw_sentence(kind, self.rng)), start_s)
            self._agree(listener, segment)
            start_s = segment.end_s + self.rng.uniform(0.1, 0.5)
            if self.speech_s >= self.aim_s:
                break
        self.floor_s = segment.end_s

    def _agree(self, listener: Side, segment: Segment) -> None:
        """Say a back-channel of the listener during `segment`, now and then."""
        if segment.end_s - segment.start_s < 2 or self.rng.random() > BACKCHANNEL_SHARE:
            return
        start_s = self.rng.uniform(segment.start_s + 0.8, segment.end_s)
        if start_s > listener.free_s:
            self._say(listener, list(map(Token, draw_sentence("backchannel", self.rng))), start_s)

    def _marked(self, words: tuple[str, ...]) -> list[Token]:
        """Return the sentence as tokens, some with a mark that fits."""
        tokens = list(map(Token, words))
        if self.rng.random() < MARK_SHARE:
            for mark in self._marks:
                marked = add_mark(tokens, mark, self.rng)
                if marked is not None:
                    self._marks.remove(mark)
                    self._marks.append(mark)
                    return marked
        return tokens

    def _say(self, side: Side, tokens: list[Token], start_s: float) -> Segment:
        """Lay `tokens` on the time line of `side` from `start_s` on."""
        margins_s = self.rng.uniform(0.05, 0.15, size=2)
        gain = 10 ** (self.rng.uniform(-2, 2) / 20)
        at_s = start_s + margins_s[0]
        for run in _runs(tokens):
            samples = self._sound_of(run, side.voice)
            side.sounds.append((round(at_s * SAMPLING_RATE_HZ), gain * samples))
            end_s, at_s = at_s + len(samples) / SAMPLING_RATE_HZ, at_s + (len(samples) / SAMPLING_RATE_HZ + 0.06)
        segment = Segment(start_s, end_s + margins_s[1], tuple(tokens))
        side.segments.append(segment)
        if segment.has_words:
            self.speech_s += segment.end_s - segment.start_s
        return segment

    def _sound_of(self, run: list[Token], voice: Voice) -> np.ndarray:
        """Return samples of a sound or of words in one breath."""
        if run[0].is_sound:
            return make_sound(run[0].kind, self.rng)
        samples, starts_s = self.espeak.speak([spoken_form(token) for token in run], voice)
        samples = samples * (0.12 / np.sqrt((samples**2).mean()))
        bounds = [round(start_s * SAMPLING_RATE_HZ) for start_s in starts_s] + [len(samples)]
        for token, first, last in zip(run, bounds, bounds[1:], strict=False):
            samples[first:last] *= _manner(token, last - first)
        return samples


def _runs(tokens: list[Token]) -> Iterator[list[Token]]:
    """Yield runs of tokens: each sound alone, words between sounds together."""
    for is_sound, group in itertools.groupby(tokens, key=lambda token: token.is_sound):
        run = list(group)
        yield from ([sound] for sound in run) if is_sound else [run]


def _manner(token: Token, num_samples: int) -> np.ndarray | float:
    """Return a token's gain: laughter shakes, asides and uncertain words are soft."""
    if token.kind == "laughed":
        return 1 + 0.5 * np.sin(2 * np.pi * 7 / SAMPLING_RATE_HZ * np.arange(num_samples))
    return QUIET if token.kind in ("aside", "uncertain") else 1.0
