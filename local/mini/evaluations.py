"""Test sets as on disk: Hub5'00 (LDC2002S09, LDC2002T43) and RT-03 (LDC2007S10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from asrtool.local.mini.conversation import Conversation, Segment
from asrtool.local.mini.grammar import MARKS, Token
from asrtool.local.mini.plan import CALLHOME, SWITCHBOARD, Call, Pool, draw_voices, split_evenly
from asrtool.local.mini.telephone import LineQuality

CALL_SPEECH_S = 40.0
GREETING_S = 5.5  # approximate speech before the scored part
TEST_MARKS = tuple(mark for mark in MARKS if mark != "coined")  # a word of no training text would measure nothing
HUB5_AUDIO = "LDC2002S09/hub5e_00/english"
HUB5_REFERENCE = "LDC2002T43/2000_hub5_eng_eval_tr/reference"
HUB5_GLM = "en20000405_hub5.glm"
RT03_AUDIO = "LDC2007S10/data/audio/eval03/english/cts"
RT03_REFERENCES = "LDC2007S10/data/references/eval03/english/cts"
RT03_RULES = "LDC2007S10/data/trans_rules"
RT03_GLM = "en20030506.glm"


@dataclass(frozen=True)
class Part:
    """Half of a test set; `number` seeds it and is different for each."""

    number: int
    audio: str  # folder
    prefix: str  # prefix of its calls' names
    first_call: int
    pool: Pool
    quality: LineQuality


HUB5 = (
    Part(3, HUB5_AUDIO, "en", 4101, CALLHOME, LineQuality((-36, -29), (15, 20), (-44, -36), (-58, -48))),
    Part(4, HUB5_AUDIO, "sw", 4601, SWITCHBOARD, LineQuality((-29, -23), (21, 30), (-55, -42), (-65, -55))),
)
# Cellular lines, and calls between strangers on any line. The voices are of Hub5'00, and in no training set.
RT03 = (
    Part(5, RT03_AUDIO, "sw", 45001, SWITCHBOARD, LineQuality((-33, -24), (14, 22), (-50, -40), (-65, -55))),
    Part(6, RT03_AUDIO, "fsh", 60201, CALLHOME, LineQuality((-31, -23), (17, 30), (-55, -38), (-65, -52))),
)
RT03_LABELS = {"sw": "SW", "fsh": "FI"}
HUB5_HEADER = """;; CATEGORY "0" "" ""
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
RT03_HEADER = """;; CATEGORY "0" "" ""
;; LABEL "O" "Overall" "All segments of the synthetic test set"
;; CATEGORY "1" "Corpus" ""
;; LABEL "FI" "Fisher" "Synthetic calls between strangers"
;; LABEL "SW" "Switchboard" "Synthetic calls over cellular telephones"
;; CATEGORY "2" "Sex" ""
;; LABEL "F" "Female" ""
;; LABEL "M" "Male" ""
;; CATEGORY "3" "Dialect" ""
;; LABEL "STANDARD" "Standard" ""
"""
CONTRACTIONS = {  # expansion in the references, and other possible expansions
    "i'm": ("I AM",),
    "it's": ("IT IS", "IT HAS"),
    "that's": ("THAT IS", "THAT HAS"),
    "don't": ("DO NOT",),
    "can't": ("CAN NOT", "CANNOT"),
    "we're": ("WE ARE", "WE WERE"),
    "we've": ("WE HAVE",),
    "i've": ("I HAVE",),
}
BACKCHANNELS = "UH-HUH UHHUH MHM MM-HM MM-HMM MMHM UM-HUM UM-HUMM UH-HUM"
HESITATIONS = "UH UM AH EH ER HM HUH MM OOF HA"
CONTEXT = "/ [ ] __ [ ]"
GLM = """\
;; Rules for the synthetic test set; the constructs are those of the English evaluations of NIST.
* name "{name}"
* desc "Text rules of the synthetic conversations"
* format = 'NIST1'
* max_nrules = '500'
* copy_no_hit = 'T'
* case_sensitive = 'F'

;; Back-channels: yes and no
{backchannels}
;; Hesitations
{hesitations}
;; Spellings
OK => O. K. {context}
OKAY => O. K. {context}
MR => MISTER {context}
[GONNA] => [GOING TO] {context}
[WANNA] => [WANT TO] {context}
'CAUSE => BECAUSE {context}

;; Letters of acronyms; A and I are words
{letters}
;; The references have their contractions written out.
;; INPUT_DEPENDENT_APPLICATION = "ctm"
{contractions}"""
IGNORED = "IGNORE_TIME_SEGMENT_IN_SCORING"


def plan_calls(parts: Sequence[Part], speech_s: float, seed: int) -> list[Call]:
    """Plan calls with `speech_s` of speech, half of each part, one at least."""
    calls = []
    for part in parts:
        num_calls, call_s = split_evenly(speech_s / 2, CALL_SPEECH_S, at_least=1)
        voices = draw_voices(part.pool, np.random.default_rng((seed, part.number)))
        for index in range(num_calls):
            audio = PurePosixPath(f"{part.audio}/{part.prefix}_{part.first_call + index}.sph")
            pair, draw = (next(voices), next(voices)), (seed, part.number, index)
            speakers = (2 * index, 2 * index + 1)
            calls.append(Call(audio, pair, speakers, call_s + GREETING_S, part.quality, draw, TEST_MARKS))
    return calls


def write_hub5(root: Path, conversations: Sequence[Conversation]) -> None:
    """Write the reference (.stm), rules (.glm), and partition (.pem)."""
    folder = root / HUB5_REFERENCE
    folder.mkdir(parents=True, exist_ok=True)
    stm: list[str] = []
    pem: list[str] = []
    for item in conversations:
        name = item.name
        for side, letter in enumerate("AB"):
            corpus, sex = name[:2], item.call.voices[side].sex
            stm += stm_lines(item, side, f"{name} {letter} {name}_{letter}", f"<O,{corpus},{sex},{corpus}-{sex}>")
            pem += [f"{name} {letter} unknown_speaker {s.start_s:.2f} {s.end_s:.2f}\n" for s in scored(item, side)]
    (folder / "hub5e00.english.000405.stm").write_text(HUB5_HEADER + "".join(stm))
    (folder / HUB5_GLM).write_text(format_glm(HUB5_GLM))
    (root / HUB5_AUDIO / "hub5e_00.pem").write_text("".join(pem))


def write_rt03(root: Path, conversations: Sequence[Conversation]) -> None:
    """Write a reference (.stm) for each call, and the text rules (.glm)."""
    for folder in (RT03_REFERENCES, RT03_RULES):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for item in conversations:
        lines = [line for side in range(2) for line in _with_gaps(item, side)]
        (root / RT03_REFERENCES / f"{item.name}.stm").write_text(RT03_HEADER + "".join(lines))
    (root / RT03_RULES / RT03_GLM).write_text(format_glm(RT03_GLM))


def _with_gaps(item: Conversation, side: int) -> Iterator[str]:
    """Yield stm lines of one side, channels as numbers, and a line for each gap."""
    label = f"<O,{RT03_LABELS[item.name.partition('_')[0]]},{item.call.voices[side].sex},STANDARD>"
    at_s = 0.0
    for line in stm_lines(item, side, f"{item.name} {side + 1} {item.name}_{'AB'[side]}", label):
        start_s = float(line.split()[3])
        if start_s > at_s:
            yield f"{item.name} {side + 1} inter_segment_gap {at_s:.2f} {start_s:.2f} {label}\n"
        at_s = float(line.split()[4])
        yield line


def scored(item: Conversation, side: int) -> list[Segment]:
    """Return the scored segments: those with words, after the greeting."""
    return [s for s in item.sides[side] if s.has_words and s.start_s >= item.greeting_end_s]


def stm_lines(item: Conversation, side: int, head: str, label: str) -> Iterator[str]:
    """Yield reference lines of one side; time before and after is not scored.

    `head` is file, channel and speaker.
    """
    segments = scored(item, side)
    begin_s, end_s = (segments[0].start_s, segments[-1].end_s) if segments else (item.duration_s, item.duration_s)
    yield f"{head} 0.00 {begin_s:.2f} {label} {IGNORED}\n"
    for segment in segments:
        yield f"{head} {segment.start_s:.2f} {segment.end_s:.2f} {label} {format_stm(segment)}\n"
    if segments:
        yield f"{head} {end_s:.2f} {item.duration_s:.2f} {label} {IGNORED}\n"


def format_stm(segment: Segment) -> str:
    """Format a segment as NIST scores it: upper case, no contractions or sounds."""
    return " ".join(_stm_token(token) for token in segment.tokens if not token.is_sound)


def _stm_token(token: Token) -> str:
    if token.kind in ("partial", "tail"):
        return f"({token.pronounced}-)".upper() if token.kind == "partial" else f"(-{token.pronounced})".upper()
    if token.word in ("uh", "um"):
        return "(%HESITATION)"
    written, *_ = {"t._v.": ("T. V.",), **CONTRACTIONS}.get(token.word, (token.word.upper(),))
    if token.kind == "mispronounced":
        return f"{{{written} / {token.pronounced.upper()}}}"
    if token.kind == "uncertain":
        return " ".join(f"({word})" for word in written.split())
    return written


def format_glm(name: str) -> str:
    """Return the GLM rules, under the `name` of a file."""
    return GLM.format(
        name=name,
        backchannels=_rules("BCACK", BACKCHANNELS.split()) + _rules("BCNACK", ["UH-UH", "HUH-UH"]),
        hesitations=_rules("HESITATION", [mark + word for word in HESITATIONS.split() for mark in ("", "%")]),
        letters="".join(f"{letter} => {letter}. {CONTEXT}\n" for letter in "BCDEFGHJKLMNOPQRSTUVWXYZ"),
        contractions="".join(map(_contraction_rule, CONTRACTIONS)),
        context=CONTEXT,
    )


def _rules(meaning: str, words: Sequence[str]) -> str:
    return "".join(f"{word} => %{meaning} {CONTEXT}\n" for word in words)


def _contraction_rule(word: str) -> str:
    readings = CONTRACTIONS[word]
    target = f"{{{' / '.join(readings)}}}" if len(readings) > 1 else readings[0]
    return f"[{word.upper()}] => [{target}] {CONTEXT}\n"
