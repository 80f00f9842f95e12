"""A tree of SPEAKER/CHAPTER/*.trans.txt with *.flac, as LibriSpeech has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from asrtool.errors import AsrtoolError
from asrtool.local.corpus import Release
from asrtool.local.layouts.manifest import write_rows
from asrtool.local.layouts.rows import Row
from asrtool.local.published import reading
from asrtool.local.releases.releases import find_files
from asrtool.settings.data import Data

TRANSCRIPTS = "*-*.trans.txt"


def prepare_trans(folder: Path, out: Path, data: Data, label: str) -> None:
    """Write the manifest folder `out` of all parts below `folder`.

    Segments of ref.stm have the label. Raises AsrtoolError if too much cannot be used.
    """
    write_rows(_rows(folder.absolute()), [], out, data, label)


def _rows(folder: Path) -> Iterator[Row]:
    for path in find_files(folder, TRANSCRIPTS):
        lines = path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
        for number, line in enumerate(filter(str.strip, lines), start=1):
            id_, *words = line.split(None, 1)
            audio = str(path.with_name(f"{id_}.flac"))
            yield Row(f"{path}:{number}", audio, " ".join(words), id_.partition("-")[0], None, None)


def is_trans_folder(folder: Path) -> bool:
    """Return whether `folder` holds such a tree, at any depth."""
    return next(find_files(folder, TRANSCRIPTS), None) is not None


def read_parts(
    folder: Path, release: Release, is_wanted: Callable[[Path], bool] = lambda _: True
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the folder of each part below `folder`, with lhotse's manifests for it.

    Raises AsrtoolError for a transcript less than two folders deep, and on lhotse's errors.
    """
    from lhotse.recipes import prepare_librispeech

    for found in dict.fromkeys(path.parents[2] for path in find_files(folder, TRANSCRIPTS)):
        if not found.is_relative_to(folder):
            raise AsrtoolError(f"{folder}: its transcripts are of one speaker or chapter", "give the folder above")
        if is_wanted(found):
            with reading(release, folder):
                manifests = prepare_librispeech(found.parent, dataset_parts=found.name)
            yield found, manifests[found.name]
