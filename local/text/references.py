"""References by utterance: an stm from normalised text, and matching rules."""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping

from asrtool.data.manifests.validator import Entry
from asrtool.local.text.text_rules import HESITATIONS, TAGS
from asrtool.score.utterances import MARK, escape, file_of

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
HEADING = """\
;; CATEGORY "0" "" ""
;; LABEL "O" "Overall" "Overall"
;; CATEGORY "1" "Corpus" ""
"""
HYPOTHESIS_RULES = "INPUT_DEPENDENT_APPLICATION"


def format_reference(entries: Iterable[Entry], corpus_of: Mapping[str, str], is_english: bool = True) -> str:
    """Format an stm with optional hesitations and partial words, as in Hub5'00.

    Tags are left out. In other languages nothing is optional, since er or ha may be words. `corpus_of` (recording id
    -> corpus) labels utterances, so each corpus is scored separately too. Times are in the recording.
    """
    reference = Reference(corpus_of.__getitem__, is_english)
    reference.add(entries)
    return b"".join(reference.read()).decode()


class Reference:
    """Compressed `format_reference` of utterances that come by recording.

    `corpus_of` maps a recording's id to its corpus.
    """

    def __init__(self, corpus_of: Callable[[str], str], is_english: bool) -> None:
        self._corpus_of = lambda recording: set_name(corpus_of(recording))
        self._is_english = is_english
        self._corpora: set[str] = set()
        self._compressor = zlib.compressobj(1)
        self._pieces: list[bytes] = []

    def add(self, entries: Iterable[Entry]) -> None:
        """Add utterances, in any order."""
        lines = []
        for entry in sorted(entries, key=lambda e: (e["recording_id"], e["channel"], e["start"], e["id"])):
            spoken = [word for word in (entry.get("text") or "").split() if word not in TAGS]
            words = " ".join(map(_reference_word, spoken) if self._is_english else spoken)
            corpus = self._corpus_of(entry["recording_id"])
            self._corpora.add(corpus)
            times = f"{entry['start']:.3f} {round(entry['start'] + entry['duration'], 8):.3f}"
            file, speaker = file_of(entry["recording_id"], entry["id"]), escape(str(entry.get("speaker")))
            lines.append(f"{file} {'AB'[entry['channel']]} {speaker} {times} <O,{corpus}> {words}".rstrip() + "\n")
        self._pieces.append(self._compressor.compress("".join(lines).encode()))

    def read(self) -> Iterator[bytes]:
        """Yield the content of ref.stm; call it once, after all utterances are added."""
        labels = (f';; LABEL "{corpus}" "{corpus}" "{corpus}"\n' for corpus in sorted(self._corpora))
        yield (MARK + HEADING + "".join(labels)).encode()
        decompressor = zlib.decompressobj()
        for piece in (*self._pieces, self._compressor.flush()):
            yield decompressor.decompress(piece)


@functools.cache
def set_name(name: str) -> str:
    """Return `name` as the name of a set and an stm label, without blanks and signs."""
    safe = re.sub(r"[^\w.:+-]+", "-", name).strip(".-")
    return safe if safe.lower() not in ("", "o") else f"set-{safe}".strip("-")  # O is the label of all that is scored


def reference_rules(glm: str) -> str:
    """Return the rules of `glm` without those meant for hypotheses alone.

    These expand contractions, which the annotators of Hub5'00 have done in its reference and nobody has in others.
    """
    lines = glm.splitlines()
    end = next((i for i, line in enumerate(lines) if HYPOTHESIS_RULES in line), len(lines))
    return "\n".join(lines[:end]) + "\n"


def _reference_word(word: str) -> str:
    is_optional = word in HESITATIONS or word.startswith("-") or word.endswith("-")
    return f"({word})" if is_optional else word
