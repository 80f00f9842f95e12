"""Training sets as on disk: Switchboard-1 (LDC97S62) and Fisher English."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from asrtool.local.mini.conversation import Conversation, Segment
from asrtool.local.mini.grammar import Token
from asrtool.local.mini.plan import Call, plan_training, split_evenly
from asrtool.local.mini.telephone import LineQuality

SWBD_QUALITY = LineQuality(level_db=(-29, -23), snr_db=(21, 30), crosstalk_db=(-55, -42), hum_db=(-65, -55))
SWBD_TRANSCRIPTS = "swb_ms98_transcriptions"
FIRST_NUMBER, FIRST_CALLER = 2001, 1001
CALLS_PER_DISC = 110
CALL_S = 75.0  # approximate speech of a call
FISHER_QUALITY = LineQuality(level_db=(-31, -23), snr_db=(17, 30), crosstalk_db=(-55, -38), hum_db=(-65, -52))
FISHER_PARTS = (  # audio package and its folder, transcript package and its folder, first call
    ("LDC2004S13/fisher_eng_tr_sp_d1", "LDC2004T19/fe_03_p1_tran", 1),
    ("LDC2005S13/fe_03_p2_sph1", "LDC2005T19/fe_03_p2_tran", 5851),
)
FIRST_PIN = 20001
FISHER_HEADER = (
    "CALL_ID,DATE_TIME,TOPICID,SIG_GRADE,CNV_GRADE,APIN,ASX.DL,APHNUM,APHSET,APHTYP,BPIN,BSX.DL,BPHNUM,BPHSET,BPHTYP\n"
)
SOUND_TAGS = {"mumble": "(( ))", "breath": "[breath]", "cough": "[cough]", "lipsmack": "[lipsmack]"}


def plan_swbd(speech_s: float, seed: int) -> list[Call]:
    """Plan at least three calls with `speech_s` seconds of speech in all."""
    num_calls, call_s = split_evenly(speech_s, CALL_S, at_least=3)
    discs = [f"LDC97S62/swb1_d{index // CALLS_PER_DISC + 1}/data" for index in range(num_calls)]
    audio = [f"{disc}/sw0{number}.sph" for number, disc in enumerate(discs, FIRST_NUMBER)]
    return plan_training(audio, call_s, SWBD_QUALITY, (seed, 1), FIRST_CALLER)


def plan_fisher(speech_s: float, seed: int) -> list[Call]:
    """Plan calls with `speech_s` of speech, at least three, more in part 1."""
    num_calls, call_s = split_evenly(speech_s, CALL_S, at_least=3)
    calls = [
        (folder, f"{first + index:05d}")
        for (folder, _, first), num in zip(FISHER_PARTS, ((num_calls + 1) // 2, num_calls // 2), strict=True)
        for index in range(num)
    ]
    audio = [f"{folder}/audio/{number[:3]}/fe_03_{number}.sph" for folder, number in calls]
    return plan_training(audio, call_s, FISHER_QUALITY, (seed, 2), FIRST_PIN)


def write_swbd(root: Path, conversations: Sequence[Conversation], pronunciations: dict[str, str]) -> None:
    """Write transcripts of both sides, the dictionary, and the table of callers."""
    callers = []
    for index, item in enumerate(conversations):
        number, minutes, topic = item.name[3:], max(1, round(item.duration_s / 60)), 301 + index % 67
        folder = root / SWBD_TRANSCRIPTS / number[:2] / number
        folder.mkdir(parents=True, exist_ok=True)
        for side, segments, caller in zip("AB", item.sides, item.call.speakers, strict=True):
            lines = [
                f"sw{number}{side}-ms98-a-{count:04d} {s.start_s:.6f} {s.end_s:.6f} {format_ms98(s.tokens)}\n"
                for count, s in enumerate(_tile(segments, item.duration_s), start=1)
            ]
            (folder / f"sw{number}{side}-ms98-a-trans.text").write_text("".join(lines))
            callers.append(f'{number}, "{side}", {caller}, "555-{caller}", {minutes}, {topic}, "", "Y"\n')
    words = [f"{word} {phonemes}\n" for word, phonemes in sorted(pronunciations.items())]
    (root / SWBD_TRANSCRIPTS / "sw-ms98-dict.text").write_text("".join(words))
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
        spoken = map(_ms98_token, run)
        words += ["<b_aside>", *spoken, "<e_aside>"] if is_aside else spoken
    return " ".join(words) or "[silence]"


def _ms98_token(token: Token) -> str:
    """Return a token in MS-State mark-up."""
    word = {"t._v.": "t v", "mhm": "um-hum"}.get(token.word, token.word)
    if token.is_sound:
        return {"noise": "[noise]", "laughter": "[laughter]"}.get(token.kind, "[vocalized-noise]")
    if token.kind == "partial":
        return f"{token.pronounced}[{word.removeprefix(token.pronounced)}]-"
    if token.kind == "tail":
        return f"-[{word.removesuffix(token.pronounced)}]{token.pronounced}"
    if token.kind == "mispronounced":
        return f"[{token.pronounced}/{word}]"
    return {"laughed": f"[laughter-{word}]", "coined": f"{{{word}}}"}.get(token.kind, word)


def write_fisher(root: Path, conversations: Sequence[Conversation]) -> None:
    """Write one .txt per call and one table of calls per part."""
    for audio, transcripts, _ in FISHER_PARTS:
        part = [item for item in conversations if item.call.audio.is_relative_to(audio)]
        for item in part:
            folder = root / transcripts / "data" / "trans" / item.name[6:9]
            folder.mkdir(parents=True, exist_ok=True)
            both = [(side, s) for side, segments in zip("AB", item.sides, strict=True) for s in segments]
            both.sort(key=lambda turn: (turn[1].start_s, turn[0]))
            turns = [f"{s.start_s:.2f} {s.end_s:.2f} {side}: {format_fisher(s)}\n" for side, s in both]
            heading = f"# {item.name}.sph\n# Transcribed at the LDC\n\n"
            (folder / f"{item.name}.txt").write_text(heading + "\n".join(turns))
        doc = root / transcripts / "doc"
        doc.mkdir(parents=True, exist_ok=True)
        name = transcripts.rpartition("/")[2].replace("_tran", "_calldata.tbl")
        (doc / name).write_text(FISHER_HEADER + "".join(map(_table_line, part)))


def format_fisher(segment: Segment) -> str:
    """Format a segment in Fisher mark-up; uncertain words in double brackets."""
    return " ".join(_fisher_token(token) for token in segment.tokens).replace(" )) (( ", " ")


def _fisher_token(token: Token) -> str:
    if token.is_sound:
        return SOUND_TAGS.get(token.kind, f"[{token.kind}]")
    word = {"um-hum": "mhm"}.get(token.word, token.word)
    return {
        "partial": f"{token.pronounced}-",
        "tail": f"-{token.pronounced}",
        "uncertain": f"(( {word} ))",
        "laughed": f"[laughter] {word}",
    }.get(token.kind, word)


def _table_line(item: Conversation) -> str:
    people = zip(item.call.speakers, item.call.voices, strict=True)
    sides = [f"{pin},{voice.sex.lower()}.a,5550{pin},1,1" for pin, voice in people]
    return f"{item.name[6:]},20021210_19:15:10,ENG01,3,3,{sides[0]},{sides[1]}\n"
