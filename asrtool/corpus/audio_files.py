"""Files of audio that manifests name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from asrtool.corpus.manifest import RECORDINGS, read_lines
from asrtool.corpus.tally import Entry
from asrtool.url import Part


def audio_files(recording: Entry) -> list[str]:
    """Those on the disk; of a recording that is a part of a file, that file."""
    found = [(source["type"], source["source"]) for source in recording["sources"]]
    paths = [name if kind == "file" else Part.parse(name).path for kind, name in found if kind in ("file", "url")]
    return [str(path) for path in paths if path]


def audio_files_below(folder: Path) -> Iterator[str]:
    """Those of all manifests at or below `folder`. Raises AsrtoolError for one that is corrupt."""
    for manifest in sorted(folder.rglob(RECORDINGS)):
        for paths in read_lines(manifest, audio_files):
            yield from paths
