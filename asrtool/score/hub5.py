"""Score a ctm against an stm with the counts of NIST's ``hubscr.pl -h hub5``.

channels.py and the modules it calls have the rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from asrtool.score.channels import Scored, score_channels
from asrtool.score.formats.glm import HYPOTHESIS, REFERENCE, read_glm
from asrtool.score.formats.lines import lower
from asrtool.score.formats.stm import Labels, read_titles
from asrtool.score.result import BY_TIME, Alignment, Result, Segment


def score_hub5(ref: Path | str, hyp: Path | str, glm: Path | str | None = None) -> Result:
    """Score `hyp` (ctm) against `ref` (stm) with the mapping rules `glm`.

    A channel that the ctm lacks counts as deleted. Raises AsrtoolError for a malformed file, naming its line, and for
    a ctm that has a file or channel the stm lacks. Labels have to be declared by the stm.
    """
    titles = read_titles(ref)
    ref_rules, hyp_rules = (read_glm(glm, inputs) if glm else None for inputs in (REFERENCE, HYPOTHESIS))
    scored = score_channels(ref, hyp, ref_rules, hyp_rules)
    return Result(tuple(_segments(scored, Labels(ref, titles))), titles, BY_TIME)


def _segments(scored: Iterable[Scored], labels: Labels) -> Iterator[Segment]:
    """Segments with the names that sclite gives them."""
    num_segments: Counter[str] = Counter()
    for file, channel, speaker, start_s, end_s, names, reference, pairs in scored:
        speaker = lower(speaker)
        key = f"{speaker}-{num_segments[speaker]:03d}"
        num_segments[speaker] += 1
        yield Segment(key, speaker, labels.read(names), reference, Alignment(pairs), file, channel, start_s, end_s)
