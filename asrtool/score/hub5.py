"""Score a ctm against an stm by the rules of Hub5: the counts of ``hubscr.pl -V -l english -h hub5``.

Both sides are filtered (filter.py), sorted, and brought together by file and channel. A hypothesis word belongs to the
first segment that ends after its midpoint, what remains to the last one; each segment is aligned by itself.
"""

from __future__ import annotations

import struct
from collections import Counter
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
from asrtool.score.network import Network
from asrtool.score.result import Result, Segment
from asrtool.score.stm import StmSegment, read_stm
from asrtool.score.text import is_ignored, is_mark, read_hypothesis, read_reference

Line = TypeVar("Line", StmSegment, CtmWord)
Words = Sequence[tuple[CtmWord, TimedWord]]


def score_hub5(ref: Path | str, hyp: Path | str, glm: Path | str | None = None) -> Result:
    """Score `hyp` (ctm) against `ref` (stm) with the mapping rules `glm`.

    A channel that the ctm lacks counts as deleted. Raises AsrtoolError for a malformed file, naming its line, and for
    a ctm that has a file or channel the stm lacks.
    """
    stm, ctm = read_stm(ref), read_ctm(hyp)
    ref_rules, hyp_rules = (read_glm(glm, inputs) if glm else None for inputs in (REFERENCE, HYPOTHESIS))
    declared = {lower(label): label for label in stm.titles}
    filtered = list(filter_ctm(_sorted(ctm), hyp_rules))
    hypotheses = [list(words) for _, words in groupby(filtered, key=lambda pair: _side(pair[0]))]
    counter: Counter[str] = Counter()
    scored = []
    for side, group in groupby(_sorted(stm.segments), key=_side):
        matches = bool(hypotheses) and _side(hypotheses[0][0][0]) == side
        words = hypotheses.pop(0) if matches else []
        segments = [(segment, filter_segment(segment, ref_rules)) for segment in group]
        for segment, ref_net, hyp_net in _networks(segments, words):
            speaker = lower(segment.speaker)
            labels = tuple(declared.get(lower(label), label) for label in segment.labels)
            scored.append(
                Segment(
                    id=f"{speaker}-{counter[speaker]:03d}",
                    speaker=speaker,
                    labels=labels,
                    alignment=align_networks(ref_net, hyp_net),
                    file=segment.file,
                    channel=segment.channel,
                    start_s=segment.start_s,
                    end_s=segment.end_s,
                )
            )
            counter[speaker] += 1
    if hypotheses:
        _fail_unmatched(hypotheses[0][0][0], ref)
    return Result(tuple(scored), stm.titles)


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


def _networks(segments: list[tuple[StmSegment, str]], words: Words) -> Iterator[tuple[StmSegment, Network, Network]]:
    """The scored segments of one channel with both their networks."""
    start = 0
    for number, (segment, text) in enumerate(segments):
        end = len(words) if number == len(segments) - 1 else _end_of_segment(words, start, segment.end_s)
        own = words[start:end]
        start = end
        if not is_ignored(text):
            yield segment, read_reference(text, segment.place), read_hypothesis([word for _, word in own])


def _end_of_segment(words: Words, start: int, end_s: float) -> int:
    """The first word from `start` on whose midpoint does not lie before `end_s`; alternatives stay together."""
    limit_s = struct.unpack("f", struct.pack("f", end_s))[0]  # sclite keeps segment times in single precision
    while start < len(words):
        stop = _end_of_block(words, start)
        times = [word for _, word in words[start:stop] if not is_mark(word) or stop == start + 1]
        middle_s = max((word.start_s + word.duration_s / 2 for word in times), default=0.0)
        if middle_s >= limit_s:
            break
        start = stop
    return start


def _end_of_block(words: Words, start: int) -> int:
    if not is_mark(words[start][1]):
        return start + 1
    stop = start
    while stop < len(words) and words[stop][1].text != "<alt_end>":
        stop += 1
    return min(stop + 1, len(words))
