"""What the layouts do alike with a set that they have read."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

from lhotse import Recording, SupervisionSegment

from asrtool.corpus.manifest import Drop, write_manifests
from asrtool.corpus.settings import Data
from local.layouts.copies import copies_among, say_left_out
from local.references import NO_RULES_GLM, format_reference

DENSE = 30  # characters a second that nobody says: fast speech has 20 to 25


def write_set(
    out: Path,
    recordings: Collection[Recording],
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
    say_left_out(out, copies, len(segments))
    segments = [segment for segment in segments if segment.id not in copies]
    dense = [s for s in segments if s.duration >= 1 and len(s.text or "") > DENSE * s.duration]
    if dense:
        logging.warning(
            "%s: %d of %d utterances have more than %d characters a second, the first is %s: is their audio cut off, or"
            " their text that of others?", out, len(dense), len(segments), DENSE, dense[0].id,
        )  # fmt: skip
    labels = dict.fromkeys((r.id for r in recordings), label)
    reference = format_reference((s.to_dict() for s in segments), labels, data.text_rules == "english")
    texts = {"ref.stm": reference, "ref.glm": NO_RULES_GLM}
    write_manifests(out, recordings, segments, drops, data.bad_fraction, texts)
