"""Score a ctm against an stm by the rules of Hub5: the counts of ``hubscr.pl -V -l english -h hub5``.

The rules are those of channels.py and the modules it calls. Where it could be compiled, _hub5.cpp does the same for
well-formed files in a fraction of the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from asrtool.score.formats.glm import HYPOTHESIS, REFERENCE, read_glm
from asrtool.score.formats.lines import lower, read_text
from asrtool.score.formats.stm import Labels, read_titles
from asrtool.score.result import BY_TIME, Alignment, Pair, Result, Segment

if TYPE_CHECKING:
    from asrtool.score.channels import Scored

try:
    from asrtool.score import _hub5 as compiled
except ImportError:  # installed where there is no C++ compiler
    compiled = None  # type: ignore[assignment]


def score_hub5(ref: Path | str, hyp: Path | str, glm: Path | str | None = None) -> Result:
    """Score `hyp` (ctm) against `ref` (stm) with the mapping rules `glm`.

    A channel that the ctm lacks counts as deleted. Raises AsrtoolError for a malformed file, naming its line, and for
    a ctm that has a file or channel the stm lacks. Labels have to be declared by the stm.
    """
    stm_text, ctm_text = read_text(ref), read_text(hyp)
    titles = read_titles(ref, stm_text)
    ref_rules, hyp_rules = (read_glm(glm, inputs) if glm else None for inputs in (REFERENCE, HYPOTHESIS))
    scored: Iterable[Scored] | None = None
    if compiled:
        ref_list, hyp_list = (rules.rules if rules else None for rules in (ref_rules, hyp_rules))
        scored = compiled.score(stm_text, ctm_text, ref_list, hyp_list, Pair)
    if scored is None:
        from asrtool.score.channels import score_channels

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
