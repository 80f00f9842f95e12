"""Score a ctm against an stm by the rules of Hub5: the counts of ``hubscr.pl -V -l english -h hub5``.

Both sides are filtered (filter.py), sorted, and brought together by file and channel. A hypothesis word belongs to the
first segment that ends after its midpoint, what remains to the last one; each segment is aligned by itself.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from asrtool.errors import AsrtoolError
from asrtool.score.align import align_networks
from asrtool.score.ctm import CtmWord, read_ctm
from asrtool.score.filter import TimedWord, filter_ctm, filter_segment
from asrtool.score.glm import HYPOTHESIS, REFERENCE, read_glm
from asrtool.score.lines import lower
from asrtool.score.result import Alignment, Result, Segment
from asrtool.score.stm import StmSegment, read_stm
from asrtool.score.text import is_ignored, read_hypothesis, read_reference

Line = TypeVar("Line", StmSegment, CtmWord)
Words = Sequence[tuple[CtmWord, TimedWord]]


def score_hub5(ref: Path | str, hyp: Path | str, glm: Path | str | None = None) -> Result:
    """Score `hyp` (ctm) against `ref` (stm) with the mapping rules `glm`.

    A channel that the ctm lacks counts as deleted. Raises AsrtoolError for a malformed file, naming its line, and for
    a ctm that has a file or channel the stm lacks.
    """
    stm, ctm = read_stm(ref), read_ctm(hyp)
    ref_rules, hyp_rules = (read_glm(glm, inputs) if glm else None for inputs in (REFERENCE, HYPOTHESIS))
    filtered = list(filter_ctm(_sorted(ctm), hyp_rules))
    hypotheses = deque(list(words) for _, words in groupby(filtered, key=lambda pair: _side(pair[0])))
    titles = {lower(label): label for label in stm.titles}
    num_segments: Counter[str] = Counter()
    scored = []
    for side, group in groupby(_sorted(stm.segments), key=_side):
        words = hypotheses.popleft() if hypotheses and _side(hypotheses[0][0][0]) == side else []
        segments = [(segment, filter_segment(segment, ref_rules)) for segment in group]
        for segment, alignment in _align(segments, words):
            speaker = lower(segment.speaker)
            scored.append(_scored(segment, f"{speaker}-{num_segments[speaker]:03d}", titles, alignment))
            num_segments[speaker] += 1
    if hypotheses:
        _fail_unmatched(hypotheses[0][0][0], ref)
    return Result(tuple(scored), stm.titles)


def _scored(segment: StmSegment, key: str, titles: dict[str, str], alignment: Alignment) -> Segment:
    return Segment(
        id=key,
        speaker=lower(segment.speaker),
        labels=tuple(titles.get(lower(label), label) for label in segment.labels),
        alignment=alignment,
        file=segment.file,
        channel=segment.channel,
        start_s=segment.start_s,
        end_s=segment.end_s,
    )


def _sorted(lines: Iterable[Line]) -> list[Line]:
    """The order in which NIST's scorer reads: by file, by the white space behind it, by channel, by time."""
    return sorted(lines, key=lambda line: (line.file, line.gap, line.channel, line.start_s))


def _side(line: StmSegment | CtmWord) -> tuple[str, str]:
    return lower(line.file), lower(line.channel)


def _fail_unmatched(word: CtmWord, ref: Path | str) -> None:
    raise AsrtoolError(
        f"{word.place.path}:{word.place.line}: file {word.file} channel {word.channel} is not in {ref}",
        "score against the reference of the same test set; write file and channel alike in both",
    )


def _align(segments: list[tuple[StmSegment, str]], words: Words) -> Iterator[tuple[StmSegment, Alignment]]:
    """The scored segments of one channel, each with its alignment to the words that fall into it."""
    start = 0
    for number, (segment, text) in enumerate(segments):
        end = len(words) if number == len(segments) - 1 else _end_of_segment(words, start, segment.end_s)
        own = words[start:end]
        start = end
        if not is_ignored(text):
            hypothesis = read_hypothesis([word.text for _, word in own])
            yield segment, align_networks(read_reference(text, segment.place), hypothesis)


def _end_of_segment(words: Words, start: int, end_s: float) -> int:
    """The first word from `start` on whose midpoint does not lie before `end_s`; alternatives stay together."""
    limit_s = struct.unpack("f", struct.pack("f", end_s))[0]  # sclite keeps segment times in single precision
    while start < len(words):
        stop = _end_of_block(words, start)
        times = [word for _, word in words[start:stop] if stop == start + 1 or not word.is_mark]
        middle_s = max((word.start_s + word.duration_s / 2 for word in times), default=0.0)
        if middle_s >= limit_s:
            break
        start = stop
    return start


def _end_of_block(words: Words, start: int) -> int:
    if not words[start][1].is_mark:
        return start + 1
    stop = start
    while stop < len(words) and words[stop][1].text != "<alt_end>":
        stop += 1
    return min(stop + 1, len(words))
