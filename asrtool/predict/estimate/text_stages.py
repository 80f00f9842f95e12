"""Cost of the stages that read text, in proportion to its words.

Rates come from `make bench-scale` on Fisher and Switchboard (benchmarks/README.md): a lexicon of 45,000 words,
4-grams, a thousand tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

GIB = 2**30
WORDS_AN_HOUR = 11_000  # of Switchboard and Fisher
FULL_HOURS = 1753.0  # to train on, there
FULL_WORDS = FULL_HOURS * WORDS_AN_HOUR
LEAST_GIB = 0.05  # of a process


@dataclass(frozen=True)
class Rates:
    """Rates of a stage on the full text of Switchboard and Fisher."""

    cpu_s: float
    peak_gib: float
    disk_bytes: float = 0.0

    def cpu_hours(self, words: float) -> float:
        """Return the CPU hours for so many words."""
        return self.cpu_s / 3600 * words / FULL_WORDS

    def memory_bytes(self, words: float) -> float:
        """Likewise, at the peak."""
        return GIB * max(LEAST_GIB, self.peak_gib * words / FULL_WORDS)


PREPARE = Rates(cpu_s=9.4 + 49.1 + 21.6, peak_gib=0.57)  # of both corpora, and the split; without what is decoded
TEXT = Rates(cpu_s=49.1, peak_gib=0.31)  # transcripts of Fisher: at most what it takes with its audio
TOKENIZER = Rates(cpu_s=41.2, peak_gib=1.64)  # of pieces
LANG = Rates(cpu_s=4.7, peak_gib=0.23)
LM = Rates(cpu_s=48.1, peak_gib=0.33)  # at most, with lm.memory_gib = 0.5
GRAPH = Rates(cpu_s=213.0, peak_gib=3.02, disk_bytes=442e6)
SEARCH = Rates(cpu_s=0.0, peak_gib=1.81)  # of a process that holds the graph; its time is that of the speech
