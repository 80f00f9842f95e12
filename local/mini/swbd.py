"""Switchboard-1 Release 2 as on disk: LDC97S62, and MS-State transcripts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from asrtool.local.mini.conversation import Conversation, Segment
from asrtool.local.mini.grammar import Token
from asrtool.local.mini.plan import Call, plan_training
from asrtool.local.mini.telephone import LineQuality

QUALITY = LineQuality(level_db=(-29, -23), snr_db=(21, 30), crosstalk_db=(-55, -42), hum_db=(-65, -55))
TRANSCRIPTS = "swb_ms98_transcriptions"
FIRST_NUMBER, FIRST_CALLER = 2001, 1001
CALLS_PER_DISC = 110


def plan_calls(speech_s: float, seed: int) -> list[Call]:
    """Plan at least three calls with `speech_s` seconds of speech in all."""
    return plan_training(speech_s, QUALITY, (seed, 1), FIRST_CALLER, _place)


def _place(index: int, _: int) -> PurePosixPath:
    disc = index // CALLS_PER_DISC + 1
    return PurePosixPath(f"LDC97S62/swb1_d{disc}/data/sw0{FIRST_NUMBER + index}.sph")


def write_transcripts(root: Path, held: Sequence[Conversation], pronunciations: dict[str, str]) -> None:
    """Write transcripts of both sides, the dictionary, and the table of callers."""
    callers = []
    for index, item in enumerate(held):
        number, minutes, topic = item.name[3:], max(1, round(item.duration_s / 60)), 301 + index % 67
        folder = root / TRANSCRIPTS / number[:2] / number
        folder.mkdir(parents=True, exist_ok=True)
        for side, segments, caller in zip("AB", item.sides, item.call.speakers, strict=True):
            lines = [
                f"sw{number}{side}-ms98-a-{place:04d} {s.start_s:.6f} {s.end_s:.6f} {format_ms98(s.tokens)}\n"
                for place, s in enumerate(_tile(segments, item.duration_s), start=1)
            ]
            (folder / f"sw{number}{side}-ms98-a-trans.text").write_text("".join(lines))
            callers.append(f'{number}, "{side}", {caller}, "555-{caller}", {minutes}, {topic}, "", "Y"\n')
    words = [f"{word} {phonemes}\n" for word, phonemes in sorted(pronunciations.items())]
    (root / TRANSCRIPTS / "sw-ms98-dict.text").write_text("".join(words))
    docs = root / "LDC97S62" / "docs"
    docs.mkdir(parents=True, exist_ok=True)
    (docs / "call_con_tab.csv").write_text("".join(callers))


def _tile(segments: Iterable[Segment], duration_s: float) -> Iterator[Segment]:
    """Yield `segments` with silence between them, covering 0 to `duration_s`."""
    at_s = 0.0
    for segment in segments:
        if segment.start_s > at_s:
            yield Segment(at_s, segment.start_s, ())
        yield segment
        at_s = segment.end_s
    if duration_s > at_s:
        yield Segment(at_s, duration_s, ())


def format_ms98(tokens: Sequence[Token]) -> str:
    """Format a segment in MS-State mark-up."""
    words: list[str] = []
    for is_aside, run in itertools.groupby(tokens, key=lambda token: token.kind == "aside"):
        said = map(format_token, run)
        words += ["<b_aside>", *said, "<e_aside>"] if is_aside else said
    return " ".join(words) or "[silence]"


def format_token(token: Token) -> str:
    """Return a token in MS-State mark-up."""
    word = {"t._v.": "t v", "mhm": "um-hum"}.get(token.word, token.word)
    if token.is_sound:
        return {"noise": "[noise]", "laughter": "[laughter]"}.get(token.kind, "[vocalized-noise]")
    if token.kind == "partial":
        return f"{token.heard}[{word.removeprefix(token.heard)}]-"
    if token.kind == "tail":
        return f"-[{word.removesuffix(token.heard)}]{token.heard}"
    if token.kind == "mispronounced":
        return f"[{token.heard}/{word}]"
    return {"laughed": f"[laughter-{word}]", "coined": f"{{{word}}}"}.get(token.kind, word)
