"""Score a ctm against an stm channel by channel.

Both sides are filtered (filter.py), sorted, and brought together by file and channel. A hypothesis word belongs to the
first segment that ends after its midpoint, what remains to the last one; each segment is aligned by itself.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import NamedTuple

from asrtool.errors import AsrtoolError
from asrtool.score.align import align_networks
from asrtool.score.filter import CtmFilter, HeardWord, filter_segment
from asrtool.score.formats.ctm import Ctm, check_blocks, read_ctm
from asrtool.score.formats.glm import RuleSet
from asrtool.score.formats.lines import Side, lower, split
from asrtool.score.formats.stm import StmSegment, read_stm
from asrtool.score.result import Pair
from asrtool.score.text import is_ignored, is_mark, read_hypothesis, read_reference
from asrtool.score.utterances import SUFFIX, is_of_utterances


class Scored(NamedTuple):
    """A scored segment of a channel; times in seconds."""

    file: str
    channel: str
    speaker: str
    start_s: float
    end_s: float
    labels: str  # with commas between, as the stm has them
    reference: str
    pairs: tuple[Pair, ...]


def score_channels(
    ref: Path | str, hyp: Path | str, ref_rules: RuleSet | None, hyp_rules: RuleSet | None
) -> Iterator[Scored]:
    """Yield the scored segments of `hyp` (ctm) against `ref` (stm) in NIST's order.

    Raises AsrtoolError for a malformed file, and for a ctm that has a file or channel the stm lacks.
    """
    segments, ctm = read_stm(ref), read_ctm(hyp)
    heard = _heard(ctm, CtmFilter(ctm.path, hyp_rules))
    ordered = sorted(segments, key=attrgetter("side", "start_s"))
    for channel, group in groupby(ordered, key=lambda segment: _channel(segment.side)):
        words = heard.popleft()[1] if heard and _channel(heard[0][0]) == channel else []
        texts = [(segment, filter_segment(segment, ref_rules)) for segment in group]
        for segment, text, pairs in _align(texts, words):
            side, names = segment.side, ",".join(segment.labels)
            times = segment.start_s, segment.end_s
            yield Scored(side.file, side.channel, segment.speaker, *times, names, " ".join(split(text)), pairs)
    if heard:
        _fail_unmatched(ctm, heard[0][0], ref)


def _heard(ctm: Ctm, ctm_filter: CtmFilter) -> deque[tuple[Side, list[HeardWord]]]:
    """Return the filtered words of each channel, sorted by side, then by time."""
    by_start = attrgetter("start_s")
    channels: deque[tuple[Side, list[HeardWord]]] = deque()
    for _, group in groupby(sorted(ctm.sides.items(), key=itemgetter(0)), key=lambda item: _channel(item[0])):
        sides = list(group)
        words = [word for _, words in sides for word in sorted(words, key=by_start)]
        heard = ctm_filter.apply(words)
        if ctm.has_alternatives:
            check_blocks(ctm.path, words)
            heard = _hold_blocks(heard)
        channels.append((sides[0][0], heard))
    return channels


def _channel(side: Side) -> tuple[str, str]:
    return lower(side.file), lower(side.channel)


def _fail_unmatched(ctm: Ctm, side: Side, ref: Path | str) -> None:
    line = min(word.line for word in ctm.sides[side])
    what = f"{ctm.path}:{line}: file {side.file} channel {side.channel} is not in {ref}"
    if is_of_utterances(Path(ref)):
        raise AsrtoolError(what, f"name METHOD{SUFFIX}, which decoding writes beside METHOD.ctm")
    raise AsrtoolError(what, "score against the reference of the same test set; write file and channel alike in both")


def _align(
    segments: list[tuple[StmSegment, str]], words: list[HeardWord]
) -> Iterator[tuple[StmSegment, str, tuple[Pair, ...]]]:
    """Yield the segments of a channel with their text and aligned words."""
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
            yield segment, text, align_networks(read_reference(text, segment.place), hypothesis).pairs
        start = stop


def _hold_blocks(words: list[HeardWord]) -> list[HeardWord]:
    """Give the words of a block of alternatives its latest midpoint: one segment."""
    held: list[HeardWord] = []
    start = 0
    while start < len(words):
        stop = _end_of_block(words, start)
        middle_s = words[start][1]
        if stop > start + 1:  # sclite begins at 0
            middle_s = max([0.0, *(middle_s for text, middle_s in words[start:stop] if not is_mark(text))])
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
