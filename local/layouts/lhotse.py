"""A folder with lhotse manifests of a person's own, one of recordings and one of supervisions, to our manifests."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Sequence
from pathlib import Path

import soundfile
from lhotse import Recording, SupervisionSegment

from asrtool.corpus.batches import load_ahead
from asrtool.corpus.manifest import Drop, read_lines, write_manifests
from asrtool.corpus.remote_audio import look_at_address
from asrtool.corpus.settings import Data
from asrtool.errors import AsrtoolError
from asrtool.log import progress
from asrtool.url import as_url, join
from local.layouts.address import manifests_of
from local.references import NO_RULES_GLM, format_reference
from local.releases import find_files
from local.text_rules import normalise_plain
from local.utterances import look_at, normalise_all

NUM_THREADS = 16  # files looked at side by side: a server may take a while for each


def prepare_lhotse(folder: Path, out: Path, data: Data, label: str) -> None:
    """Write the manifest folder `out` from *recordings*.jsonl.gz and *supervisions*.jsonl.gz in `folder`.

    `folder` may be an address, and so may the sources of recordings. Its ref.stm has that label on each segment.
    Raises AsrtoolError when there is not one of each, one is corrupt, or too much cannot be used, and where a server
    does not answer or refuses.
    """
    drops: list[Drop] = []
    with manifests_of(folder, ("recordings", "supervisions")) as copy:
        recordings = {r.id: r for r in read_lines(_the_manifest(copy, "recordings"), Recording.from_dict)}
        supervisions = list(read_lines(_the_manifest(copy, "supervisions"), SupervisionSegment.from_dict))
    transcribed = {s.recording_id for s in supervisions}
    drops += [Drop(id_, "no transcript", "no supervision") for id_ in recordings if id_ not in transcribed]
    drops += [Drop(id_, "no audio", "no recording of that id") for id_ in sorted(transcribed - recordings.keys())]
    usable = _usable([r for id_, r in recordings.items() if id_ in transcribed], as_url(folder), drops)
    segments = normalise_all((s for s in supervisions if s.recording_id in usable), normalise_plain, drops)
    reference = format_reference((s.to_dict() for s in segments), dict.fromkeys(usable, label))
    texts = {"ref.stm": reference, "ref.glm": NO_RULES_GLM}
    write_manifests(out, usable.values(), segments, drops, data.bad_fraction, texts)


def is_lhotse_folder(folder: Path) -> bool:
    """Whether `folder` holds manifests of lhotse."""
    return any(folder.glob("*recordings*.jsonl*"))


def _the_manifest(folder: Path, what: str) -> Path:
    found = [path for path in find_files(folder, f"*{what}*.jsonl*") if path.parent == folder]
    if len(found) != 1:
        raise AsrtoolError(
            f"{folder}: {len(found)} files *{what}*.jsonl.gz, expected one", "give a folder with one manifest of each"
        )
    return found[0]


def _usable(recordings: Sequence[Recording], url: str, drops: list[Drop]) -> dict[str, Recording]:
    """Those whose files can be read as declared; the others are added to `drops`. Paths become absolute.

    Relative ones are below the address `url` of the manifests where they have one.
    """
    check = functools.partial(_fault, url=url)
    with contextlib.closing(load_ahead(check, recordings, 2 * NUM_THREADS, NUM_THREADS)) as faults:
        found = zip(recordings, progress(faults, "look at audio", len(recordings), "file"), strict=True)
        by_fault = [(recording, fault) for recording, fault in found]
    drops += [Drop(recording.id, "unusable audio", fault) for recording, fault in by_fault if fault]
    return {recording.id: recording for recording, fault in by_fault if not fault}


def _fault(recording: Recording, url: str) -> str:
    """Why it cannot be used; empty where it can."""
    for source in recording.sources:
        if source.type not in ("file", "url"):
            return f"source is a {source.type}, expected a file or an address"
        address = as_url(source.source) or (join(url, source.source) if url and source.source[0] != "/" else "")
        source.type, source.source = ("url", address) if address else ("file", os.path.abspath(source.source))
        try:
            num_samples = look_at_address(address)[0] if address else look_at(Path(source.source)).num_samples
        except soundfile.LibsndfileError as error:
            return f"{address}: no readable audio: {error.error_string}"
        except OSError as error:
            return str(error)
        except AsrtoolError as error:
            if address:  # its server is down, or refuses
                raise
            return error.what
        if num_samples < recording.num_samples and recording.transforms is None:
            return f"{source.source}: {num_samples} samples, expected {recording.num_samples}"
    return ""
