"""Text rules to score the mini corpus, in the format of NIST's GLM files."""

from __future__ import annotations

BACKCHANNELS = "UH-HUH UHHUH MHM MM-HM MM-HMM MMHM UM-HUM UM-HUMM UH-HUM"
HESITATIONS = "UH UM AH EH ER HM HUH MM OOF HA"
CONTRACTIONS = {  # as written out in the references
    "i'm": "I AM",
    "it's": "IT IS",
    "that's": "THAT IS",
    "don't": "DO NOT",
    "can't": "CAN NOT",
    "we're": "WE ARE",
    "we've": "WE HAVE",
    "i've": "I HAVE",
}
OTHER_READINGS = {  # what else a contraction may stand for
    "it's": "IT HAS",
    "that's": "THAT HAS",
    "can't": "CANNOT",
    "we're": "WE WERE",
}
_CONTEXT = "/ [ ] __ [ ]"


def format_glm(name: str) -> str:
    """Return the GLM rules, under the `name` of a file."""
    return "\n".join(
        [
            ";; Rules for the synthetic test set; the constructs are those of the English evaluations of NIST.",
            f'* name "{name}"',
            '* desc "Text rules of the synthetic conversations"',
            "* format = 'NIST1'",
            "* max_nrules = '500'",
            "* copy_no_hit = 'T'",
            "* case_sensitive = 'F'",
            "",
            ";; Back-channels: yes and no",
            *(f"{word} => %BCACK {_CONTEXT}" for word in BACKCHANNELS.split()),
            *(f"{word} => %BCNACK {_CONTEXT}" for word in ("UH-UH", "HUH-UH")),
            "",
            ";; Hesitations",
            *(f"{mark}{word} => %HESITATION {_CONTEXT}" for word in HESITATIONS.split() for mark in ("", "%")),
            "",
            ";; Spellings",
            *(f"{word} => O. K. {_CONTEXT}" for word in ("OK", "OKAY")),
            f"MR => MISTER {_CONTEXT}",
            f"[GONNA] => [GOING TO] {_CONTEXT}",
            f"[WANNA] => [WANT TO] {_CONTEXT}",
            f"'CAUSE => BECAUSE {_CONTEXT}",
            "",
            ";; Letters of acronyms; A and I are words",
            *(f"{letter} => {letter}. {_CONTEXT}" for letter in "BCDEFGHJKLMNOPQRSTUVWXYZ"),
            "",
            ";; The references have their contractions written out.",
            ';; INPUT_DEPENDENT_APPLICATION = "ctm"',
            *map(_contraction_rule, CONTRACTIONS),
            "",
        ]
    )


def _contraction_rule(word: str) -> str:
    readings = [CONTRACTIONS[word], *filter(None, [OTHER_READINGS.get(word)])]
    target = f"{{{' / '.join(readings)}}}" if len(readings) > 1 else readings[0]
    return f"[{word.upper()}] => [{target}] {_CONTEXT}"
