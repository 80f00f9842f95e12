"""Hub5'00 as on disk: LDC2002S09 and LDC2002T43."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from asrtool.local.mini.call import Call, Recorded, split_evenly
from asrtool.local.mini.conversation import Plan, Segment
from asrtool.local.mini.glm import format_glm
from asrtool.local.mini.marks import MARKS, Token
from asrtool.local.mini.stm import scored, stm_lines
from asrtool.local.mini.telephone import LineQuality
from asrtool.local.mini.voices import CALLHOME, SWITCHBOARD, Pool, draw_voices

AUDIO = "LDC2002S09/hub5e_00/english"
REFERENCE = "LDC2002T43/2000_hub5_eng_eval_tr/reference"
GLM_NAME = "en20000405_hub5.glm"
CALL_SPEECH_S = 40.0
GREETING_S = 5.5  # of speech before what is scored begins, about
PARTS: tuple[tuple[str, int, Pool, LineQuality], ...] = (
    ("en", 4101, CALLHOME, LineQuality((-36, -29), (15, 20), (-44, -36), (-58, -48))),
    ("sw", 4601, SWITCHBOARD, LineQuality((-29, -23), (21, 30), (-55, -42), (-65, -55))),
)
TEST_MARKS = tuple(mark for mark in MARKS if mark != "coined")  # a word of no training text would measure nothing
STM_HEADER = """;; CATEGORY "0" "" ""
;; LABEL "O" "Overall" "All segments of the synthetic test set"
;; CATEGORY "1" "Corpus" ""
;; LABEL "EN" "Callhome" "Synthetic calls with accents, speed and noise"
;; LABEL "SW" "Switchboard" "Synthetic calls like those of training"
;; CATEGORY "2" "Sex" ""
;; LABEL "F" "Female" ""
;; LABEL "M" "Male" ""
;; CATEGORY "3" "Corpus/Sex" ""
;; LABEL "EN-F" "Female Callhome" ""
;; LABEL "EN-M" "Male Callhome" ""
;; LABEL "SW-F" "Female Switchboard" ""
;; LABEL "SW-M" "Male Switchboard" ""
"""
CONTRACTED = {  # contraction: the words it joins and their parts
    "i'm": "[i=>i]['m=>am]",
    "it's": "[it=>it]['s=>is]",
    "that's": "[that=>that]['s=>is]",
    "don't": "[do=>do][n't=>not]",
    "can't": "[ca=>can][n't=>not]",
    "we're": "[we=>we]['re=>are]",
    "we've": "[we=>we]['ve=>have]",
    "i've": "[i=>i]['ve=>have]",
}


def plan_calls(speech_s: float, seed: int) -> list[Call]:
    """Plan calls with `speech_s`, half CallHome, half Switchboard, one at least."""
    calls = []
    for part, (prefix, first, pool, quality) in enumerate(PARTS, start=3):
        num_calls, call_s = split_evenly(speech_s / 2, CALL_SPEECH_S, at_least=1)
        voices = draw_voices(pool, np.random.default_rng((seed, part)))
        for index in range(num_calls):
            name = f"{prefix}_{first + index}"
            plan = Plan(
                name, (next(voices), next(voices)), call_s + GREETING_S, quality, (seed, part, index), TEST_MARKS
            )
            calls.append(Call(plan, (2 * index, 2 * index + 1), PurePosixPath(f"{AUDIO}/{name}.sph")))
    return calls


def write_references(root: Path, recorded: Sequence[Recorded]) -> None:
    """Write transcripts (.txt), references (.stm), rules (.glm), partition (.pem)."""
    folder = root / REFERENCE / "english"
    folder.mkdir(parents=True, exist_ok=True)
    for item in recorded:
        (folder / f"{item.conversation.name}.txt").write_text(format_txt(item))
    stm = [line for item in recorded for side in range(2) for line in _stm(item, side)]
    (root / REFERENCE / "hub5e00.english.000405.stm").write_text(STM_HEADER + "".join(stm))
    (root / REFERENCE / GLM_NAME).write_text(format_glm(GLM_NAME))
    pem = [
        f"{item.conversation.name} {'AB'[side]} unknown_speaker {segment.start_s:.2f} {segment.end_s:.2f}\n"
        for item in recorded
        for side in range(2)
        for segment in scored(item, side)
    ]
    (root / AUDIO / "hub5e_00.pem").write_text("".join(pem))


def _stm(item: Recorded, side: int) -> Iterator[str]:
    name, sex = item.conversation.name, item.voices[side].sex
    corpus, letter = name[:2], "AB"[side]
    return stm_lines(item, side, f"{name} {letter} {name}_{letter}", f"<O,{corpus},{sex},{corpus}-{sex}>")


def format_txt(item: Recorded) -> str:
    """Format a call's transcript with hesitations, sounds and contractions marked."""
    begin_s, end_s = item.conversation.greeting_end_s, item.conversation.duration_s
    turns = sorted(
        (segment.start_s, letter, segment)
        for letter, side in zip("AB", item.conversation.sides, strict=True)
        for segment in side
    )
    head = [
        "#Language: eng",
        f"#File id: {item.conversation.name[3:]}",
        f"#Starting at {begin_s:.0f} Ending at {end_s:.0f}",
        f"# {begin_s:.0f} {begin_s + 10:.0f} #BEGIN",
        f"# {end_s - 10:.0f} {end_s:.0f} #END",
    ]
    lines = [f"\n{s.start_s:.2f} {s.end_s:.2f} {letter}: {_typed(s)}" for _, letter, s in turns]
    return "\n".join([*head, *lines, ""])


def _typed(segment: Segment) -> str:
    return " ".join(_typed_token(timed.token) for timed in segment.tokens).replace("// //", " ")


def _typed_token(token: Token) -> str:
    if token.is_sound:
        return {"laughter": "{laugh}", "noise": "[noise]", "mumble": "(( ))"}.get(token.kind, f"{{{token.kind}}}")
    if token.word in ("uh", "um"):
        return f"%{token.word},"
    word = "I" if token.word == "i" else token.word
    if token.word in CONTRACTED:
        word = f'<contraction e_form="{CONTRACTED[token.word]}">{word}'
    return {
        "partial": f"{token.heard}-",
        "tail": f"-{token.heard}",
        "mispronounced": f"+{word}+",
        "uncertain": f"(( {word} ))",
        "aside": f"//{word}//",
    }.get(token.kind, word)
