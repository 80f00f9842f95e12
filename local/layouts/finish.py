"""What the layouts do alike with a set that they have read."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from asrtool.corpus.copies import refuse_copy
from asrtool.corpus.manifest import Drop, format_line, write_sorted
from asrtool.corpus.settings import Data
from asrtool.corpus.tally import Entry
from asrtool.local.layouts.copies import copies_among, say_left_out
from asrtool.local.references import NO_RULES_GLM, Reference

if TYPE_CHECKING:
    from lhotse import SupervisionSegment

DENSE = 30  # characters a second that nobody says: fast speech has 20 to 25


def write_set(
    out: Path,
    recordings: Iterable[Entry],
    segments: Collection[SupervisionSegment],
    drops: list[Drop],
    data: Data,
    label: str,
) -> None:
    """Write the manifest folder `out`, with ref.stm, whose segments have that label, and ref.glm.

    Copies at other speeds are left out. The log says so, and where text is too long for its audio. Raises AsrtoolError
    when too much cannot be used.
    """
    copies = copies_among([segment.id for segment in segments])
    say_left_out(out, len(copies), len(segments), min(copies, default=""))
    spoken = by_recording(segment for segment in segments if segment.id not in copies)
    write_spoken(out, recordings, watch_density(out, spoken), drops, data, lambda _: label)


def by_recording(segments: Iterable[SupervisionSegment]) -> Iterator[list[Entry]]:
    """The entries of a recording each, by its id; `segments` are in any order."""
    ordered = sorted(segments, key=lambda segment: segment.recording_id)
    for _, group in itertools.groupby(ordered, key=lambda segment: segment.recording_id):
        yield [segment.to_dict() for segment in group]


def watch_density(out: Path, spoken: Iterable[list[Entry]]) -> Iterator[list[Entry]]:
    """`spoken`; when all have been read, the log says of how many utterances the text is too long for their audio."""
    num, dense = 0, []
    for entries in spoken:
        num += len(entries)
        dense += [e["id"] for e in entries if e["duration"] >= 1 and len(e["text"]) > DENSE * e["duration"]]
        yield entries
    if dense:
        logging.warning(
            "%s: %d of %d utterances have more than %d characters a second, the first is %s: is their audio cut off, or"
            " their text that of others?", out, len(dense), num, DENSE, dense[0],
        )  # fmt: skip


def write_spoken(
    out: Path,
    recordings: Iterable[Entry],
    spoken: Iterable[Sequence[Entry]],
    drops: list[Drop],
    data: Data,
    corpus_of: Callable[[str], str],
) -> None:
    """Write the manifest folder `out`, with ref.stm and ref.glm; `spoken` are the utterances of a recording each.

    Recordings come by their ids, and of none are the utterances kept. `corpus_of` says of such an id how segments of
    the reference are labelled. `drops` may be added to while they are read. Raises AsrtoolError when too much cannot be
    used, and for an utterance with a name that features.speeds gives to copies.
    """
    reference = Reference(corpus_of, data.text_rules == "english")

    def lines() -> Iterator[tuple[Entry, str]]:
        for entries in spoken:
            for entry in entries:
                refuse_copy(out, entry["id"], entry.get("speaker", ""))
            reference.add(entries)
            yield from map(format_line, sorted(entries, key=lambda e: (e["start"], e["channel"], e["id"])))

    texts: dict[str, str | Iterator[bytes]] = {"ref.stm": reference.read(), "ref.glm": NO_RULES_GLM}
    write_sorted(out, recordings, lines(), drops, data.bad_fraction, texts)
