"""Random stm, ctm and GLM with every construct the scorer reads."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from random import Random

import pytest

SCTK = Path("/usr/lib/sctk/bin")

GLM = """;; rules of every kind
* name "test"
* format = 'NIST1'
* max_nrules = '400'
* copy_no_hit = 'T'
* case_sensitive = 'F'
UH => %HESITATION / [ ] __ [ ]
UM => %HESITATION / [ ] __ [ ] ;; comment
[UH-HUH] => [%BCACK] / [ ] __ [ ]
GONNA => GOING TO
OK => [O. K.] / [ ] __ [ ]
ALOT => A LOT / [ ] __ [ ]
BINYAMIN => BENJAMIN / __ [ NET]
ADVISER => ADVISOR / [ ] __
[THE END] => [THEEND] / [ ] __ [ ]
BLACK BIRD => BLACKBIRD
[MP5] => [M P 5] / [ ] __ [ ]
"TWO THREE" => "TWENTY THREE"
[GONE AWAY] => [] / [ ] __ [ ]
;; INPUT_DEPENDENT_APPLICATION = "ctm"
[CAN'T] => [{CAN NOT / CANNOT}] / [ ] __ [ ]
[HE'S] => [{HE IS / HE HAS}] / [ ] __ [ ]
[THAT'S] => [{THAT'S / THAT IS / THAT HAS}] / [ ] __ [ ]
[NULLY] => [{NULLY / @}] / [ ] __ [ ]
[DEEP] => [{A / B {C / D E} / F}] / [ ] __ [ ]
;; INPUT_DEPENDENT_APPLICATION = "stm"
[REFONLY] => [{REF ONLY / @}] / [ ] __ [ ]
;; INPUT_DEPENDENT_APPLICATION = "hyp"
[WE'D] => [{WE HAD / WE WOULD}] / [ ] __ [ ]
"""
HEADER = """;; CATEGORY "0" "" ""
;; LABEL "O" "Overall" "Overall"
;; CATEGORY "1" "Corpus" ""
;; LABEL "EN" "Callhome" "CallHome"
;; LABEL "SW" "Switchboard" "Switchboard"
"""
PLAIN_TEXT = "a b c the than that he is has can not cannot going to we had would o. k. m p 5 two three"
SPECIAL_TEXT = (
    "uh um uh-huh gonna ok alot adviser the end theend black bird mp5 can't he's that's nully deep we'd BINYAMIN NET "
    "th- tha- -an -hat a-b the-end twenty-two a--b - -- -a- a' %hesitation UH Gonna x1 42 gone away laughter "
    "slaughterhouse time him five a* th-* a;tag a;t1;t2 a\\;s a;;t2 b;"
)
PLAIN, SPECIAL = PLAIN_TEXT.split(), SPECIAL_TEXT.split()


class Case:
    """One random test set; `stm` and `ctm` are the files' texts."""

    def __init__(self, seed: int, num_files: int = 20, special: list[str] = SPECIAL) -> None:
        self.random = Random(seed)
        self.special = special
        self.stm = HEADER
        self.ctm = ""
        for number in range(num_files):
            corpus = self.random.choice(["en", "sw"])
            for channel in self.random.choice(["A", "AB", "AB"]):
                heard = number == num_files - 1 or self.random.random() < 0.93
                self.add_channel(f"{corpus}_{number:03d}", channel, corpus, heard)

    def add_channel(self, file: str, channel: str, corpus: str, heard: bool) -> None:
        time_s = self.random.choice([0.0, 5.5, 100.25])
        for _ in range(self.random.choice([1, 2, 4, 8])):
            start_s = max(0.0, time_s + self.random.choice([0, 0, 0, 0.5, -0.4]))
            duration_s = round(self.random.uniform(0, 6), self.random.choice([1, 2, 3]))
            text = self.reference()
            labels = self.random.choice([f"<O,{corpus}>", f"<O,{corpus}>", "<O>", ""])
            speaker = f"{file}_{channel}{self.random.choice(['', '', '1'])}"
            time_s = start_s + duration_s
            self.stm += f"{file} {channel} {speaker} {start_s:.3f} {time_s:.3f} {labels} {text}\n"
            if heard:
                self.add_words(file, channel, start_s, duration_s, self.hypothesis(text))

    def reference(self) -> str:
        ignored = "IGNORE_TIME_SEGMENT_IN_SCORING"
        makers = [self.word] * 7 + [self.alternatives, self.optional]
        parts = [self.random.choice(makers)() for _ in range(self.random.choice([0, 1, 2, 3, 4, 5, 6, 8, 12]))]
        text = self.random.choice([" ", " ", "  "]).join(parts)
        text = re.sub("} +", lambda match: self.random.choice(["}", match[0]]), text)
        return self.random.choice([text] * 30 + [text.upper()] * 9 + [ignored, f"{ignored} a", f"a {ignored}"])

    def word(self) -> str:
        return self.random.choice(PLAIN if self.random.random() < 0.55 else [*self.special, "refonly"])

    def optional(self) -> str:
        words = [self.random.choice([*PLAIN, *SPECIAL[:40]]) for _ in range(self.random.choice([1, 1, 1, 2, 3]))]
        return f"({self.random.choice(['', ' '])}{' '.join(words)})"

    def alternatives(self, depth: int = 0) -> str:
        makers = [lambda: "@", lambda: "@", self.optional] + [lambda: self.random.choice(PLAIN)] * 4
        makers += [lambda: self.random.choice(["uh", "th-", "a-b", "ok", "can't", "the end"])] * 2
        if not depth:
            makers += [lambda: self.alternatives(1), lambda: f"a {self.alternatives(1)}"]
        parts = [self.random.choice(makers)() for _ in range(self.random.choice([1, 2, 2, 2, 3]))]
        text = "{ " + " / ".join(parts) + " }"
        return text if len(text) < 90 else "a"  # sclite overruns its buffer beyond 100 characters

    def hypothesis(self, text: str) -> list[str]:
        words = [word for word in re.sub(r"[{}()/]|@", " ", text).lower().split() if "ignore_time" not in word]
        words = [word for word in words if self.random.random() > 0.12]
        words = [word if self.random.random() > 0.2 else self.word() for word in words]
        if self.random.random() < 0.3:
            words.insert(self.random.randrange(len(words) + 1), self.word())
        odd = ["@", "a/b", "(uh)", "(th-)"]
        return [self.random.choice(odd) if self.random.random() < 0.04 else word for word in words]

    def add_words(self, file: str, channel: str, time_s: float, duration_s: float, words: list[str]) -> None:
        step_s = duration_s / (len(words) + 1)
        sure = self.random.random() < 0.4
        for word in words:
            length_s = self.random.choice([step_s, step_s * 0.8, 0.01, 0])
            confidence = f" {self.random.random():.2f}" if sure and self.random.random() < 0.9 else ""
            line = f"{file} {channel} {time_s:.2f} {length_s:.2f} {word}{confidence}\n"
            mark = f"{file} {channel} {self.random.choice(['* *', f'{time_s:.2f} 0'])}"
            if self.random.random() < 0.04:
                other = f"{file} {channel} {time_s:.2f} {length_s:.2f} {self.word()}\n"
                other = self.random.choice([other, other, ""])
                line = f"{mark} <ALT_BEGIN>\n{line}{mark} <ALT>\n{other}{mark} <ALT_END>\n"
            self.ctm += line
            time_s += step_s * self.random.choice([1, 1, 1, 1, 1.5, 0.5])


def skip_without_sctk() -> None:
    if not (SCTK / "hubscr.pl").exists():
        pytest.skip(f"no SCTK in {SCTK} (Debian package sctk)")
    if shutil.which("perl") is None:
        pytest.skip("no perl, which hubscr.pl needs")


def write(folder: Path, stm: str, ctm: str, glm: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("r.stm", stm), ("h.ctm", ctm), ("g.glm", glm)):
        (folder / name).write_text(text, encoding="utf-8")
