"""Switchboard-1 Release 2 as on disk: LDC97S62, and MS-State transcripts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from asrtool.local.mini.conversation import Conversation, Segment, TimedToken
from asrtool.local.mini.grammar import Token
from asrtool.local.mini.plan import Call, plan_training
from asrtool.local.mini.telephone import LineQuality

QUALITY = LineQuality(level_db=(-29, -23), snr_db=(21, 30), crosstalk_db=(-55, -42), hum_db=(-65, -55))
TRANSCRIPTS = "swb_ms98_transcriptions"
FIRST_NUMBER, FIRST_CALLER = 2001, 1001
CALLS_PER_DISC = 110
README = """Transcripts of synthetic telephone conversations, in the layout of the MS-State release of Switchboard-1:
NN/NNNN/swNNNN{A,B}-ms98-a-trans.text  segments that tile the side: id, start and end in s, words
NN/NNNN/swNNNN{A,B}-ms98-a-word.text   words that tile the segments
sw-ms98-dict.text                      the words with their phonemes as espeak-ng writes them
"""


def plan_calls(speech_s: float, seed: int) -> list[Call]:
    """Plan at least three calls with `speech_s` seconds of speech in all."""
    return plan_training(speech_s, QUALITY, (seed, 1), FIRST_CALLER, _place)


def _place(index: int, _: int) -> PurePosixPath:
    disc = index // CALLS_PER_DISC + 1
    return PurePosixPath(f"LDC97S62/swb1_d{disc}/data/sw0{FIRST_NUMBER + index}.sph")


def write_transcripts(root: Path, held: Sequence[Conversation], pronunciations: dict[str, str]) -> None:
    """Write transcripts of both sides, the dictionary, and the tables."""
    for item in held:
        for side in range(2):
            _write_side(root / TRANSCRIPTS, item, side)
    (root / TRANSCRIPTS / "AAREADME.text").write_text(README)
    lines = [f"{word} {phonemes}\n" for word, phonemes in sorted(pronunciations.items())]
    (root / TRANSCRIPTS / "sw-ms98-dict.text").write_text("".join(lines))
    _write_tables(root / "LDC97S62" / "docs", held)


def _write_side(root: Path, item: Conversation, side: int) -> None:
    number = item.name[3:]
    stem = f"sw{number}{'AB'[side]}-ms98-a"
    folder = root / number[:2] / number
    folder.mkdir(parents=True, exist_ok=True)
    segments, words = [], []
    for index, segment in enumerate(_tile(item.sides[side], item.duration_s), start=1):
        name = f"{stem}-{index:04d}"
        segments.append(f"{name} {segment.start_s:.6f} {segment.end_s:.6f} {format_ms98(segment.tokens)}\n")
        words += [f"{name} {start_s:.6f} {end_s:.6f} {word}\n" for start_s, end_s, word in _tile_words(segment)]
    (folder / f"{stem}-trans.text").write_text("".join(segments))
    (folder / f"{stem}-word.text").write_text("".join(words))


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


def _tile_words(segment: Segment) -> Iterator[tuple[float, float, str]]:
    """Yield start, end and mark-up of the words and silences of `segment`."""
    at_s = segment.start_s
    for timed in segment.tokens:
        if timed.start_s > at_s:
            yield at_s, timed.start_s, "[silence]"
        yield timed.start_s, timed.end_s, format_token(timed.token)
        at_s = timed.end_s
    yield at_s, segment.end_s, "[silence]"


def format_ms98(tokens: Sequence[TimedToken]) -> str:
    """Format a segment in MS-State mark-up."""
    words: list[str] = []
    aside = False
    for timed in tokens:
        if (timed.token.kind == "aside") != aside:
            aside = not aside
            words.append("<b_aside>" if aside else "<e_aside>")
        words.append(format_token(timed.token))
    if aside:
        words.append("<e_aside>")
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


def _write_tables(folder: Path, held: Sequence[Conversation]) -> None:
    """Write conv_tab, call_con_tab and caller_tab, as the release's manual has them."""
    folder.mkdir(parents=True, exist_ok=True)
    conversations, sides, callers = [], [], {}
    for index, item in enumerate(held):
        number, topic = item.name[3:], 301 + index % 67
        (a, b), minutes = item.call.speakers, max(1, round(item.duration_s / 60))
        conversations.append(f'{number}, "Y", {a}, {b}, {topic}, 0, 910304, 1218, {1218 + minutes}, ""\n')
        for side, caller, voice in zip("AB", item.call.speakers, item.call.voices, strict=True):
            sides.append(f'{number}, "{side}", {caller}, "555-{caller}", {minutes}, {topic}, "", "Y"\n')
            sex = {"F": "FEMALE", "M": "MALE"}[voice.sex]
            dialect = {"en-US": "WESTERN"}.get(voice.accent, "MIXED")
            callers[caller] = (
                f'{caller}, {caller + 100000}, "Y", "{sex}", {1930 + caller % 40}, "{dialect}", 2, 0, "CASH", 15, '
                '"N", "", 0, "UNK"\n'
            )
    (folder / "conv_tab.csv").write_text("".join(conversations))
    (folder / "call_con_tab.csv").write_text("".join(sides))
    (folder / "caller_tab.csv").write_text("".join(callers[caller] for caller in sorted(callers)))
