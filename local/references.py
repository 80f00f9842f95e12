"""References to score against: an stm from normalised text, and mapping rules (glm) that fit it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from local.text_rules import HESITATIONS, TAGS

if TYPE_CHECKING:
    from lhotse import SupervisionSegment

# NIST's filter takes the first character of the file for that of comments, and does not run without a rule.
NO_RULES_GLM = """\
;; No rule that changes a word.
* name "none"
* desc "no rules"
* format = 'NIST1'
* max_nrules = '10'
* copy_no_hit = 'T'
* case_sensitive = 'F'
%HESITATION => %HESITATION / [ ] __ [ ]
"""
HYPOTHESIS_RULES = "INPUT_DEPENDENT_APPLICATION"


def format_reference(segments: Iterable[SupervisionSegment], corpus_of: Mapping[str, str]) -> str:
    """An stm in which hesitations and partial words may be missed without loss, as in Hub5'00; tags are left out.

    `corpus_of` (recording id -> corpus) labels the segments, so that each corpus is scored apart too.
    """
    segments = sorted(segments, key=lambda s: (s.recording_id, s.channel, s.start, s.id))
    corpora = sorted({corpus_of[s.recording_id] for s in segments})
    lines = [
        ';; CATEGORY "0" "" ""',
        ';; LABEL "O" "Overall" "Overall"',
        ';; CATEGORY "1" "Corpus" ""',
        *(f';; LABEL "{corpus}" "{corpus}" "{corpus}"' for corpus in corpora),
    ]
    for s in segments:
        words = " ".join(map(_reference_word, (word for word in (s.text or "").split() if word not in TAGS)))
        place = f"{s.recording_id} {'AB'[s.channel]} {s.speaker} {s.start:.3f} {s.end:.3f}"
        lines.append(f"{place} <O,{corpus_of[s.recording_id]}> {words}".rstrip())
    return "\n".join(lines) + "\n"


def reference_rules(glm: str) -> str:
    """The rules of `glm` without those meant for hypotheses alone.

    These expand contractions, which the annotators of Hub5'00 have done in its reference and nobody has in others.
    """
    lines = glm.splitlines()
    end = next((i for i, line in enumerate(lines) if HYPOTHESIS_RULES in line), len(lines))
    return "\n".join(lines[:end]) + "\n"


def _reference_word(word: str) -> str:
    is_optional = word in HESITATIONS or word.startswith("-") or word.endswith("-")
    return f"({word})" if is_optional else word
