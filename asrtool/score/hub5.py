"""Score a ctm against an stm with the counts of NIST's ``hubscr.pl -h hub5``.

Both sides are filtered (filter.py), sorted, and brought together by file and channel. A hypothesis word belongs to the
first segment that ends after its midpoint; what remains, to the last one. Each segment is aligned by itself.
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
from asrtool.score.filter import CtmFilter, HypWord, filter_segment
from asrtool.score.glm import HYPOTHESIS, REFERENCE, RuleSet, read_glm
from asrtool.score.lines import Side, lower, split
from asrtool.score.network import is_ignored, is_mark, read_hypothesis, read_reference
from asrtool.score.result import BY_TIME, Alignment, Result, Segment
from asrtool.score.stm_ctm import Ctm, Labels, StmSegment, check_blocks, read_ctm, read_stm, read_titles
from asrtool.score.utterances import SUFFIX, is_of_utterances


def score_hub5(ref: Path | str, hyp: Path | str, glm: Path | str | None = None) -> Result:
    """Score `hyp` (ctm) against `ref` (stm) with the mapping rules `glm`.

    A channel that the ctm lacks counts as deleted. Raises AsrtoolError for a malformed file, naming its line, and for
    a ctm that has a file or channel the stm lacks. Labels have to be declared by the stm.
    """
    titles = read_titles(ref)
    ref_rules, hyp_rules = (read_glm(glm, inputs) if glm else None for inputs in (REFERENCE, HYPOTHESIS))
    labels = Labels(titles)
    segments = []
    num_segments: Counter[str] = Counter()
    for segment, text, alignment in _align_channels(ref, hyp, ref_rules, hyp_rules):
        speaker = lower(segment.speaker)
        name = f"{speaker}-{num_segments[speaker]:03d}"  # id as sclite writes it
        num_segments[speaker] += 1
        names, (file, _, channel) = labels.read(segment), segment.side
        times_s = segment.start_s, segment.end_s
        segments.append(Segment(name, speaker, names, " ".join(split(text)), alignment, file, channel, *times_s))
    return Result(tuple(segments), titles, BY_TIME)


def _align_channels(
    ref: Path | str, hyp: Path | str, ref_rules: RuleSet | None, hyp_rules: RuleSet | None
) -> Iterator[tuple[StmSegment, str, Alignment]]:
    """Yield scored segments, filtered text and alignment in NIST's order."""
    segments, ctm = read_stm(ref), read_ctm(hyp)
    channels = _filter_channels(ctm, CtmFilter(ctm.path, hyp_rules))
    ordered = sorted(segments, key=attrgetter("side", "start_s"))
    for channel, group in groupby(ordered, key=lambda segment: _channel(segment.side)):
        words = channels.popleft()[1] if channels and _channel(channels[0][0]) == channel else []
        yield from _align([(segment, filter_segment(segment, ref_rules)) for segment in group], words)
    if channels:
        _fail_unmatched(ctm, channels[0][0], ref)


def _filter_channels(ctm: Ctm, ctm_filter: CtmFilter) -> deque[tuple[Side, list[HypWord]]]:
    """Return the filtered words of each channel, sorted by side, then by time."""
    by_start = attrgetter("start_s")
    channels: deque[tuple[Side, list[HypWord]]] = deque()
    for _, group in groupby(sorted(ctm.sides.items(), key=itemgetter(0)), key=lambda item: _channel(item[0])):
        sides = list(group)
        words = [word for _, words in sides for word in sorted(words, key=by_start)]
        filtered = ctm_filter.apply(words)
        if ctm.has_alternatives:
            check_blocks(ctm.path, words)
            filtered = _hold_blocks(filtered)
        channels.append((sides[0][0], filtered))
    return channels


def _channel(side: Side) -> tuple[str, str]:
    return lower(side.file), lower(side.channel)


def _fail_unmatched(ctm: Ctm, side: Side, ref: Path | str) -> None:
    line = min(word.line for word in ctm.sides[side])
    what = f"{ctm.path}:{line}: file {side.file} channel {side.channel} is not in {ref}"
    if is_of_utterances(Path(ref)):
        raise AsrtoolError(what, f"name METHOD{SUFFIX}, which decoding writes beside METHOD.ctm")
    raise AsrtoolError(what, "score against the reference of the same test set; write file and channel alike in both")


def _align(segments: list[tuple[StmSegment, str]], words: list[HypWord]) -> Iterator[tuple[StmSegment, str, Alignment]]:
    """Yield the segments of a channel with their text and alignment."""
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
            yield segment, text, align_networks(read_reference(text, segment.location), hypothesis)
        start = stop


def _hold_blocks(words: list[HypWord]) -> list[HypWord]:
    """Give the words of a block of alternatives its latest midpoint: one segment."""
    held: list[HypWord] = []
    start = 0
    while start < len(words):
        stop = start + 1
        middle_s = words[start][1]
        if is_mark(words[start][0]):
            while stop < len(words) and words[stop - 1][0] != "<alt_end>":
                stop += 1
            if stop > start + 1:  # sclite begins at 0
                middle_s = max([0.0, *(middle_s for text, middle_s in words[start:stop] if not is_mark(text))])
        held += [(text, middle_s) for text, _ in words[start:stop]]
        start = stop
    return held
