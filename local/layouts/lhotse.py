"""A folder with lhotse manifests of a person's own, one of recordings and one of supervisions, to our manifests."""

from __future__ import annotations

import os
from pathlib import Path

from lhotse import Recording, SupervisionSegment

from asrtool.corpus.manifest import Drop, read_lines, write_manifests
from asrtool.corpus.settings import Data
from asrtool.errors import AsrtoolError
from local.references import NO_RULES_GLM, format_reference
from local.releases import find_files
from local.text_rules import normalise_plain
from local.utterances import look_at, normalise_all


def prepare_lhotse(folder: Path, out: Path, data: Data, label: str) -> None:
    """Write the manifest folder `out` from *recordings*.jsonl.gz and *supervisions*.jsonl.gz in `folder`.

    Its ref.stm has that label on each segment.
    Raises AsrtoolError when there is not one of each, one is corrupt, or too much cannot be used.
    """
    drops: list[Drop] = []
    recordings = {r.id: r for r in read_lines(_the_manifest(folder, "recordings"), Recording.from_dict)}
    supervisions = list(read_lines(_the_manifest(folder, "supervisions"), SupervisionSegment.from_dict))
    transcribed = {s.recording_id for s in supervisions}
    drops += [Drop(id_, "no transcript", "no supervision") for id_ in recordings if id_ not in transcribed]
    drops += [Drop(id_, "no audio", "no recording of that id") for id_ in sorted(transcribed - recordings.keys())]
    usable = {id_: r for id_, r in recordings.items() if id_ in transcribed and _is_usable(r, drops)}
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


def _is_usable(recording: Recording, drops: list[Drop]) -> bool:
    """Whether its files can be read as declared; if not, it is added to `drops`. Paths become absolute."""
    for source in recording.sources:
        if source.type != "file":
            drops.append(Drop(recording.id, "unusable audio", f"source is a {source.type}, expected a file"))
            return False
        source.source = os.path.abspath(source.source)
        try:
            sound = look_at(Path(source.source))
        except AsrtoolError as error:
            drops.append(Drop(recording.id, "unusable audio", error.what))
            return False
        if sound.num_samples < recording.num_samples and recording.transforms is None:
            detail = f"{source.source}: {sound.num_samples} samples, expected {recording.num_samples}"
            drops.append(Drop(recording.id, "unusable audio", detail))
            return False
    return True
