"""Score a ctm against an stm by the rules of Hub5: the counts of ``hubscr.pl -V -l english -h hub5``.

Both sides are filtered (filter.py), sorted, and brought together by file and channel. A hypothesis word belongs to the
first segment that ends after its midpoint, what remains to the last one; each segment is aligned by itself.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path

from asrtool.errors import AsrtoolError
from asrtool.score.align import align_networks
from asrtool.score.ctm import Ctm, read_ctm
from asrtool.score.filter import CtmFilter, HeardWord, filter_segment
from asrtool.score.glm import HYPOTHESIS, REFERENCE, read_glm
from asrtool.score.lines import Side, lower, split
from asrtool.score.result import Alignment, Result, Segment
from asrtool.score.stm import StmSegment, read_stm
from asrtool.score.text import is_ignored, is_mark, read_hypothesis, read_reference


def score_hub5(ref: Path | str, hyp: Path | str, glm: Path | str | None = None) -> Result:
    """Score `hyp` (ctm) against `ref` (stm) with the mapping rules `glm`.

    A channel that the ctm lacks counts as deleted. Raises AsrtoolError for a malformed file, naming its line, and for
    a ctm that has a file or channel the stm lacks.
    """
    stm, ctm = read_stm(ref), read_ctm(hyp)
    ref_rules, hyp_rules = (read_glm(glm, inputs) if glm else None for inputs in (REFERENCE, HYPOTHESIS))
    heard = _heard(ctm, CtmFilter(ctm.path, hyp_rules))
    titles = {lower(label): label for label in stm.titles}
    num_segments: Counter[str] = Counter()
    scored = []
    ordered = sorted(stm.segments, key=attrgetter("side", "start_s"))
    for channel, group in groupby(ordered, key=lambda segment: _channel(segment.side)):
        words = heard.popleft()[1] if heard and _channel(heard[0][0]) == channel else []
        segments = [(segment, filter_segment(segment, ref_rules)) for segment in group]
        for segment, text, alignment in _align(segments, words):
            speaker = lower(segment.speaker)
            key = f"{speaker}-{num_segments[speaker]:03d}"
            labels = tuple([titles.get(lower(label), label) for label in segment.labels])
            scored.append(_scored(segment, key, labels, text, alignment))
            num_segments[speaker] += 1
    if heard:
        _fail_unmatched(ctm, heard[0][0], ref)
    return Result(tuple(scored), stm.titles)


def _heard(ctm: Ctm, ctm_filter: CtmFilter) -> deque[tuple[Side, list[HeardWord]]]:
    """The filtered words of each channel in the order of NIST's scorer: by side, then by time."""
    by_start = attrgetter("start_s")
    heard = [
        (side, ctm_filter.apply(sorted(words, key=by_start)))
        for side, words in sorted(ctm.sides.items(), key=itemgetter(0))
    ]
    channels: deque[tuple[Side, list[HeardWord]]] = deque()
    for _, group in groupby(heard, key=lambda item: _channel(item[0])):
        sides = list(group)
        words = [word for _, words in sides for word in words]
        channels.append((sides[0][0], _hold_blocks(words) if ctm.has_alternatives else words))
    return channels


def _channel(side: Side) -> tuple[str, str]:
    return lower(side.file), lower(side.channel)


def _scored(segment: StmSegment, key: str, labels: tuple[str, ...], text: str, alignment: Alignment) -> Segment:
    return Segment(
        id=key,
        speaker=lower(segment.speaker),
        labels=labels,
        reference=" ".join(split(text)),
        alignment=alignment,
        file=segment.side.file,
        channel=segment.side.channel,
        start_s=segment.start_s,
        end_s=segment.end_s,
    )


def _fail_unmatched(ctm: Ctm, side: Side, ref: Path | str) -> None:
    line = min(word.line for word in ctm.sides[side])
    raise AsrtoolError(
        f"{ctm.path}:{line}: file {side.file} channel {side.channel} is not in {ref}",
        "score against the reference of the same test set; write file and channel alike in both",
    )


def _align(
    segments: list[tuple[StmSegment, str]], words: list[HeardWord]
) -> Iterator[tuple[StmSegment, str, Alignment]]:
    """The scored segments of one channel, each with its text and its alignment to the words that fall into it."""
    start = 0
    for number, (segment, text) in enumerate(segments, 1):
        stop = len(words)
        if number < len(segments):
            limit_s = struct.unpack("f", struct.pack("f", segment.end_s))[0]  # sclite has segment times in 32 bits
            stop = start
            while stop < len(words) and words[stop][1] < limit_s:
                stop += 1
        if not is_ignored(text):
            hypothesis = read_hypothesis([word for word, _ in words[start:stop]])
            yield segment, text, align_networks(read_reference(text, segment.place), hypothesis)
        start = stop


def _hold_blocks(words: list[HeardWord]) -> list[HeardWord]:
    """Give the words of each block of alternatives the midpoint of the latest, so that they fall into one segment."""
    held: list[HeardWord] = []
    start = 0
    while start < len(words):
        stop = _end_of_block(words, start)
        middles_s = [middle_s for text, middle_s in words[start:stop] if stop == start + 1 or not is_mark(text)]
        middle_s = max(middles_s, default=0.0)
        held += [(text, middle_s) for text, _ in words[start:stop]]
        start = stop
    return held


def _end_of_block(words: list[HeardWord], start: int) -> int:
    if not is_mark(words[start][0]):
        return start + 1
    stop = start
    while stop < len(words) and words[stop][0] != "<alt_end>":
        stop += 1
    return min(stop + 1, len(words))
