"""Fisher English as on disk: LDC2004S13, LDC2005S13, LDC2004T19, LDC2005T19."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from asrtool.local.mini.conversation import Conversation, Segment
from asrtool.local.mini.grammar import Token
from asrtool.local.mini.plan import Call, plan_training
from asrtool.local.mini.telephone import LineQuality

QUALITY = LineQuality(level_db=(-31, -23), snr_db=(17, 30), crosstalk_db=(-55, -38), hum_db=(-65, -52))
PARTS = (  # audio package and its folder, transcript package and its folder, first call
    ("LDC2004S13/fisher_eng_tr_sp_d1", "LDC2004T19/fe_03_p1_tran", 1),
    ("LDC2005S13/fe_03_p2_sph1", "LDC2005T19/fe_03_p2_tran", 5851),
)
FIRST_PIN = 20001
HEADER = (
    "CALL_ID,DATE_TIME,TOPICID,SIG_GRADE,CNV_GRADE,APIN,ASX.DL,APHNUM,APHSET,APHTYP,BPIN,BSX.DL,BPHNUM,BPHSET,BPHTYP\n"
)
SOUND_TAGS = {"mumble": "(( ))", "breath": "[breath]", "cough": "[cough]", "lipsmack": "[lipsmack]"}


def plan_calls(speech_s: float, seed: int) -> list[Call]:
    """Plan calls with `speech_s` of speech, at least three, more in part 1."""
    return plan_training(speech_s, QUALITY, (seed, 2), FIRST_PIN, _place)


def _place(index: int, num_calls: int) -> PurePosixPath:
    num_first = (num_calls + 1) // 2
    audio, _, first = PARTS[index >= num_first]
    number = f"{first + index - (0 if index < num_first else num_first):05d}"
    return PurePosixPath(f"{audio}/audio/{number[:3]}/fe_03_{number}.sph")


def write_transcripts(root: Path, held: Sequence[Conversation]) -> None:
    """Write one .txt per call and one table of calls per part."""
    for audio, transcripts, _ in PARTS:
        part = [item for item in held if item.call.audio.is_relative_to(audio)]
        for item in part:
            folder = root / transcripts / "data" / "trans" / item.name[6:9]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{item.name}.txt").write_text(format_call(item))
        doc = root / transcripts / "doc"
        doc.mkdir(parents=True, exist_ok=True)
        name = transcripts.rpartition("/")[2].replace("_tran", "_calldata.tbl")
        (doc / name).write_text(HEADER + "".join(map(_table_line, part)))


def format_call(item: Conversation) -> str:
    """Format a call's transcript: turns in order of time, blank lines between."""
    lines = [f"{s.start_s:.2f} {s.end_s:.2f} {side}: {format_fisher(s)}\n" for side, s in item.turns()]
    return f"# {item.name}.sph\n# Transcribed at the LDC\n\n" + "\n".join(lines)


def format_fisher(segment: Segment) -> str:
    """Format a segment in Fisher mark-up; uncertain words in double brackets."""
    return " ".join(_format_token(token) for token in segment.tokens).replace(" )) (( ", " ")


def _format_token(token: Token) -> str:
    if token.is_sound:
        return SOUND_TAGS.get(token.kind, f"[{token.kind}]")
    word = {"um-hum": "mhm"}.get(token.word, token.word)
    return {
        "partial": f"{token.heard}-",
        "tail": f"-{token.heard}",
        "uncertain": f"(( {word} ))",
        "laughed": f"[laughter] {word}",
    }.get(token.kind, word)


def _table_line(item: Conversation) -> str:
    people = zip(item.call.speakers, item.call.voices, strict=True)
    sides = [f"{pin},{voice.sex.lower()}.a,5550{pin},1,1" for pin, voice in people]
    return f"{item.name[6:]},20021210_19:15:10,ENG01,3,3,{sides[0]},{sides[1]}\n"
