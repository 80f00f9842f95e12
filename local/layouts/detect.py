"""Data in any layout to manifests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from asrtool.data.manifests.manifest import check_apart, check_place
from asrtool.errors import AsrtoolError
from asrtool.local.layouts.finish import join_sets
from asrtool.local.layouts.folder import has_pairs, is_trans_folder, prepare_folder, prepare_trans
from asrtool.local.layouts.kaldi import prepare_kaldi
from asrtool.local.layouts.lhotse import is_cuts, is_lhotse_folder, prepare_lhotse
from asrtool.local.layouts.manifest import CLIPS, LINES, TABLES, is_manifest, prepare_manifest
from asrtool.local.layouts.parquet import column_files, in_columns, prepare_columns
from asrtool.local.layouts.shar import is_shar_folder, prepare_shar
from asrtool.local.releases.releases import find_files, place_of
from asrtool.settings.data import Data
from asrtool.url import as_url

METADATA = [f"metadata{suffix}" for suffix in (*TABLES, *LINES)]  # in each folder of HuggingFace's audiofolder
ABOUT = ("dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json")  # HuggingFace's, beside columns
# Names of a set's folder or table, by the role that it is read for; of several the first one found.
NAMES = {"train": ("train", "validated"), "dev": ("dev", "validation", "valid"), "test": ("test",)}


def prepare_any(source: Path, out: Path, data: Data, label: str, role: str = "train") -> None:
    """Write the manifest folder `out` from `source` in any layout.

    wav.scp marks a Kaldi data directory, cuts.*.jsonl.gz with recording.*.tar Lhotse Shar, *recordings*.jsonl.gz or
    *cuts*.jsonl.gz lhotse manifests, *.trans.txt a tree as LibriSpeech's, *.parquet or *.arrow audio in columns, and
    a table or JSON lines a manifest. Of several sets the one of `role` is read. A URL is Shar or lhotse manifests.
    Segments of ref.stm have the `label`.
    """
    given, source = source, find_set(source, role)
    if in_columns(source):
        prepare_columns(column_files(given, NAMES, role) if given.is_dir() else [source], out, data, label)
    elif is_manifest(source) and not is_cuts(source):
        prepare_manifest(source, out, data, label)
    elif not as_url(source) and (source / "wav.scp").is_file():
        prepare_kaldi(source, out, data, label)
    elif is_shar_folder(source):
        prepare_shar(source, out, data, label)
    elif as_url(source) or is_lhotse_folder(source) or is_cuts(source):
        prepare_lhotse(source, out, data, label)
    elif is_trans_folder(source):
        prepare_trans(source, out, data, label)
    else:
        prepare_folder(source, out, data, label)


def check_out(source: Path, out: Path) -> None:
    """Raise AsrtoolError if `out` is in `source`, or would replace a user's files."""
    check_apart(source, out)
    check_place(out)


def prepare_sets(sources: Sequence[Path], out: Path, data: Data, label: str, role: str) -> None:
    """Prepare one or several sets as `prepare_any`, each in its own layout."""
    if len(sources) == 1:
        prepare_any(sources[0], out, data, label, role)
        return
    folders = [out / str(number) for number in range(1, len(sources) + 1)]
    for source, folder in zip(sources, folders, strict=True):
        prepare_any(source, folder, data, label, role)
    join_sets(out, folders, data, label)


def find_set(source: Path, role: str) -> Path:
    """Return the part of `source` for `role`: a manifest, a folder, or all of it.

    Of several files with audio in columns, the first. Raises AsrtoolError if such files or manifests exist and none
    has the role.
    """
    source = place_of(source)
    # As the stage corpus links it.
    while (
        source.is_file() and source.is_symlink() and not (is_manifest(source) or is_cuts(source) or in_columns(source))
    ):
        source = source.parent / os.readlink(source)
    if as_url(source) or not source.is_dir() or (source / "wav.scp").is_file():
        return source
    if is_lhotse_folder(source) or is_cuts(source):
        return source
    for folder in (source, *(source / name for name in NAMES[role])):
        if found := next((folder / name for name in METADATA if (folder / name).is_file()), None):
            return found
    tables = sorted(path for path in source.glob("[!.]*") if is_manifest(path))
    has_others = any(path.name not in ABOUT for path in tables) or is_trans_folder(source) or has_pairs(source)
    if not has_others and (files := column_files(source, NAMES, role)):
        return files[0]
    has_clips = (source / CLIPS).is_dir()
    if not tables or (not has_clips and any(find_files(source, "*.txt"))):
        return source
    if len(tables) == 1 and not has_clips:
        return tables[0]
    chosen = [path for name in NAMES[role] for path in tables if path.stem == name]
    if not chosen:
        there, expected = ", ".join(path.name for path in tables), " or ".join(NAMES[role])
        raise AsrtoolError(f"{source}: the manifests {there}, for {role} expected {expected}", "name one of the files")
    return chosen[0]
