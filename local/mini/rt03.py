"""RT-03 as on disk, its English telephone speech: LDC2007S10."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from asrtool.local.mini.call import Call, Recorded, split_evenly
from asrtool.local.mini.conversation import Plan
from asrtool.local.mini.glm import format_glm
from asrtool.local.mini.hub5 import CALL_SPEECH_S, GREETING_S, TEST_MARKS
from asrtool.local.mini.stm import stm_lines
from asrtool.local.mini.telephone import LineQuality
from asrtool.local.mini.voices import CALLHOME, SWITCHBOARD, Pool, draw_voices

AUDIO = "LDC2007S10/data/audio/eval03/english/cts"
REFERENCES = "LDC2007S10/data/references/eval03/english/cts"
RULES = "LDC2007S10/data/trans_rules"
GLM_NAME = "en20030506.glm"
# Cellular lines, and calls between strangers on any line. The voices are those of Hub5'00, which no training set has.
PARTS: tuple[tuple[str, str, int, Pool, LineQuality], ...] = (
    ("sw", "SW", 45001, SWITCHBOARD, LineQuality((-33, -24), (14, 22), (-50, -40), (-65, -55))),
    ("fsh", "FI", 60201, CALLHOME, LineQuality((-31, -23), (17, 30), (-55, -38), (-65, -52))),
)
LABELS = {prefix: label for prefix, label, *_ in PARTS}
HEADER = """;; CATEGORY "0" "" ""
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


def plan_calls(speech_s: float, seed: int) -> list[Call]:
    """Plan calls with `speech_s`, half of each part, one at least."""
    calls = []
    for part, (prefix, _, first, pool, quality) in enumerate(PARTS, start=5):
        num_calls, call_s = split_evenly(speech_s / 2, CALL_SPEECH_S, at_least=1)
        voices = draw_voices(pool, np.random.default_rng((seed, part)))
        for index in range(num_calls):
            name = f"{prefix}_{first + index}"
            pair = next(voices), next(voices)
            plan = Plan(name, pair, call_s + GREETING_S, quality, (seed, part, index), TEST_MARKS)
            calls.append(Call(plan, (2 * index, 2 * index + 1), PurePosixPath(f"{AUDIO}/{name}.sph")))
    return calls


def write_references(root: Path, recorded: Sequence[Recorded]) -> None:
    """Write a reference (.stm) for each call, and the text rules (.glm)."""
    for folder in (REFERENCES, RULES):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for item in recorded:
        lines = [line for side in range(2) for line in _lines(item, side)]
        (root / REFERENCES / f"{item.conversation.name}.stm").write_text(HEADER + "".join(lines))
    (root / RULES / GLM_NAME).write_text(format_glm(GLM_NAME))


def _lines(item: Recorded, side: int) -> Iterator[str]:
    """Yield stm lines of one side, channels as numbers, and a line for each gap."""
    name = item.conversation.name
    label = f"<O,{LABELS[name.partition('_')[0]]},{item.voices[side].sex},STANDARD>"
    at_s = 0.0
    for line in stm_lines(item, side, f"{name} {side + 1} {name}_{'AB'[side]}", label):
        start_s = float(line.split()[3])
        if start_s > at_s:
            yield f"{name} {side + 1} inter_segment_gap {at_s:.2f} {start_s:.2f} {label}\n"
        at_s = float(line.split()[4])
        yield line
