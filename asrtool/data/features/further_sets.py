"""Features of further utterances, alone or added to a set by links.

They are normalised as that set normalises their speakers.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from asrtool.data.features.cmvn import CMVN, write_more_cmvn
from asrtool.data.features.compute_sets import collect, compute_missing, compute_piece
from asrtool.data.features.shard_plan import plan_shards
from asrtool.data.manifests.manifest import DROPPED, Drop, format_drops, read_drops
from asrtool.data.storage.index import INDEX, RERUN
from asrtool.data.storage.index_columns import COLUMNS, write_columns
from asrtool.data.storage.shard_manifest import Finished
from asrtool.data.storage.shard_offsets import TABLE
from asrtool.data.storage.transcripts import FOLDER as WORDS
from asrtool.data.storage.transcripts import TRANSCRIPTS, number_words_again
from asrtool.data.workers.processes import num_cores, process_map
from asrtool.errors import AsrtoolError
from asrtool.settings.data import Features

# Files of a set that are written, not linked.
WRITTEN_FILES = (INDEX, COLUMNS, TABLE, TRANSCRIPTS, WORDS, CMVN, DROPPED)


def write_separate_set(directory: Path, base: Path, manifests: Path, features: Features) -> list[Drop]:
    """Write the set `directory` of the folder `manifests`, normalised as `base`.

    Returns drops without usable audio. Raises AsrtoolError as compute_features.
    """
    directory.mkdir()
    return _write(directory, base, manifests, dataclasses.replace(features, speeds=(1.0,), keep_audio=False), 0)


def write_extended_set(directory: Path, base: Path, manifests: Path | None, features: Features) -> list[Drop]:
    """Write the set `directory`: links to the shards of `base`, then `manifests`.

    `manifests` are computed at each speed. Returns drops without usable audio. Raises AsrtoolError as
    compute_features, and if `base` has no file of texts or table of shards.
    """
    if missing := next((name for name in (TRANSCRIPTS, TABLE) if not (base / name).exists()), ""):
        raise AsrtoolError(f"{base}: no {missing}, an earlier asrtool has written it", RERUN)
    if not manifests:
        link_files(directory, base)
        return []
    link_files(directory, base, WRITTEN_FILES)
    there = np.load(base / TABLE)
    drops = _write(directory, base, manifests, features, 1 + int(max(there[:, 0])))
    np.save(directory / TABLE, np.concatenate([there, np.load(directory / TABLE)]))
    for name in (INDEX, TRANSCRIPTS):
        more = (directory / name).read_bytes()
        shutil.copyfile(base / name, directory / name)
        with (directory / name).open("ab") as file:
            file.write(more)
    write_columns(directory)
    number_words_again(directory)
    text = format_drops([*read_drops(base / DROPPED), *drops])
    (directory / DROPPED).write_text(text, encoding="utf-8")
    return drops


def link_files(directory: Path, base: Path, without: Sequence[str] = ()) -> None:
    """Make a folder of relative links to the files of `base`."""
    directory.mkdir()
    start = os.path.realpath(directory)
    for path in sorted(base.iterdir()):
        if path.name not in without:
            os.symlink(os.path.relpath(os.path.realpath(path), start), directory / path.name)


def _write(directory: Path, base: Path, manifests: Path, features: Features, first: int) -> list[Drop]:
    """Write shards from number `first` on, index, texts and normalisation."""
    # Without digests: such a set is written at once and never resumed.
    jobs, _ = plan_shards(
        manifests, directory, features, lambda paths, _: itertools.repeat(None, len(paths)), first, is_fixed=True
    )
    with process_map(compute_piece.__module__, min(len(jobs), features.num_jobs or num_cores())) as map_pieces:
        for _ in compute_missing(directory, jobs, Finished(), features, "", map_pieces):
            pass
    moments, drops, _ = collect(directory, range(first, first + len(jobs)))
    write_more_cmvn(directory, base, moments)
    return drops
