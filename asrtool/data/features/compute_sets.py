"""Compute features: `manifests/SET` to `features/SET` for the sets of `sets.json`.

A set is cut into shards, and each shard is computed and written by one process, so memory does not grow with the
corpus and files do not depend on the number of processes. Shards are merged to files of FILE_BYTES or more; which
become a file depends on their sizes alone. A killed command that is run again computes what is missing.

    asrtool features exp/manifests exp/features --config recipes/swbd/conf/mini.toml
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asrtool.data.features import cache_key
from asrtool.data.features.cache_key import DIGESTS, DigestFiles, is_up_to_date, key_of, sizes_and_times, update_texts
from asrtool.data.features.cmvn import Moments, add_moments, write_cmvn
from asrtool.data.features.disk_space import check_disk_space
from asrtool.data.features.extract import compute_shard
from asrtool.data.features.shard_plan import ShardJob, plan_shards, with_rate
from asrtool.data.manifests import sets as sets_file
from asrtool.data.manifests.manifest import (
    DROPPED,
    Drop,
    check_faults,
    check_rejected_place,
    format_drops,
    read_report,
    rejected,
)
from asrtool.data.manifests.sets import Sets, read_sets, write_sets
from asrtool.data.manifests.speed_copies import with_speeds
from asrtool.data.storage.index import INDEX, SETTINGS, parse_line, write_feature_settings
from asrtool.data.storage.index_columns import writing_columns
from asrtool.data.storage.shard_manifest import (
    Finished,
    find_finished,
    merge_shards,
    read_header,
    read_records,
    remove_new_folders,
    split_file,
)
from asrtool.data.storage.shard_offsets import TABLE, shard_row, shard_table
from asrtool.data.storage.transcripts import FOLDER as WORDS
from asrtool.data.storage.transcripts import TRANSCRIPTS
from asrtool.data.workers.executor import open_executor
from asrtool.data.workers.processes import MapPieces
from asrtool.files import (
    LOCK,
    check_files,
    check_own,
    foreign_files,
    mark_files,
    parts_of,
    remove,
    remove_leftovers,
    write_in_parts,
)
from asrtool.log import progress
from asrtool.settings.data import Features

FILE_BYTES = 256 * 2**20  # minimum size of a file; the last one of a set has the rest
KEPT_FILES = (DIGESTS, TRANSCRIPTS, WORDS, LOCK)  # files of an unfinished set that stay, beside its shards


def compute_features(
    manifests: Path,
    out: Path,
    features: Features,
    code: str = "",
    digest_files: DigestFiles = sizes_and_times,
) -> None:
    """Write `out`/SET for each set, `out`/sets.json and, last, `out`/features.json.

    Sets of an earlier run are removed. If the sets hold all utterances of `manifests`, made by the same `code`, they
    only take the new texts. Otherwise the missing or changed shards are computed. Audio files are equal if
    `digest_files` returns the same for them.

    With features.sampling_rate_hz = 0 the rate is the one of most training recordings, and with features.speeds = []
    the speeds fit their hours; `out`/features.json has both. The training set gets a copy at each of
    `features.speeds`, and keeps its samples with `features.keep_audio`.

    An utterance whose audio cannot be read is set aside in `out`/SET/dropped.tsv. Raises AsrtoolError if that are
    more than `features.bad_fraction` of a set, for a missing or corrupt manifest, a wrong sampling rate, features
    that are not finite, and a full disk.
    """
    sets = read_sets(Path(manifests))
    beside = [out / name for name in (SETTINGS, cache_key.FILE, sets_file.FILE)]
    check_files(*beside)
    for name in sets.names:
        check_own(out / name, [INDEX])
        check_rejected_place(out / name)
    train = Path(manifests) / sets.train
    features = with_speeds(with_rate(features, train), read_report(train)["speech_hours"])
    if code and is_up_to_date(out, features, code) and update_texts(out, Path(manifests), sets.names, digest_files):
        logging.info("%s: has the features of all utterances of %s; only texts are written", out, manifests)
        _remove_others(out, sets)
        write_sets(out, sets)
        return
    for name in (SETTINGS, cache_key.FILE):
        (out / name).unlink(missing_ok=True)
    _remove_others(out, sets)
    check_disk_space(out, Path(manifests), sets, features)
    everyone: Moments | None = None  # moments of the training set, which is the first
    with open_executor(features, compute_piece.__module__) as map_pieces:
        for name in sets.names:
            at_all = features if name == sets.train else dataclasses.replace(features, speeds=(1.0,), keep_audio=False)
            with write_in_parts(out / name, INDEX) as directory:
                jobs, digests = plan_shards(Path(manifests) / name, directory, at_all, digest_files)
                np.save(directory / DIGESTS, digests)
                _compute_missing(name, directory, jobs, features, code, map_pieces)
                moments, drops, num_utterances = collect(directory, range(len(jobs)))
                limit = features.bad_fraction
                check_faults(out / name, drops, drops, num_utterances, "utterances", "features.bad_fraction", limit)
                everyone = everyone or functools.reduce(Moments.__add__, moments.values())
                write_cmvn(directory, moments, everyone)
                (directory / DROPPED).write_text(format_drops(drops), encoding="utf-8")
            rejected(out / name).unlink(missing_ok=True)
            logging.info("%s: %d utterances, %d left out", out / name, num_utterances, len(drops))
    mark_files(*beside, are_written=False)
    write_sets(out, sets)
    if code:
        cache_key.write_code_digest(out, code)
    # The process that computed them is no property of the features.
    write_feature_settings(out, dataclasses.replace(features, num_jobs=0, executor="local"))


def _remove_others(out: Path, sets: Sets) -> None:
    if out.is_dir():
        remove_leftovers(out)  # leftovers of all sets; writing removes only those of `sets`
    kept = {*sets.names, *(parts_of(out / name).name for name in sets.names)}
    finished = (path.parent for path in out.glob(f"*/{INDEX}") if not any(foreign_files(path.parent)))
    for folder in [*finished, *out.glob(parts_of(out / "*").name)]:
        if folder.name not in kept:
            remove(folder)


def _compute_missing(
    name: str, directory: Path, jobs: Sequence[ShardJob], features: Features, code: str, map_pieces: MapPieces
) -> None:
    """Compute all shards that an earlier command has not finished."""
    key = key_of(features, code)
    finished = find_finished(directory, key if code else "", [job.digest for job in jobs], KEPT_FILES)
    num_finished = len(finished.num_bytes)
    if num_finished:
        logging.info("features %s: %d of %d shards are there already", name, num_finished, len(jobs))
    done = compute_missing(directory, jobs, finished, features, key, map_pieces)
    for _ in progress(done, f"features {name}", total=len(jobs) - num_finished, unit="shard"):
        pass
    remove_new_folders(directory)


@dataclass(frozen=True)
class Merge:
    """Shards that become a file."""

    numbers: range

    @property
    def name(self) -> str:
        """Title for error messages."""
        return f"the file of shards {self.numbers[0]:06d} to {self.numbers[-1]:06d}"


def compute_piece(piece: ShardJob | Merge, directory: Path, features: Features, key: str) -> tuple[int, int] | None:
    """Compute a shard (returns its number and bytes), or merge a file."""
    if isinstance(piece, Merge):
        merge_shards(directory, piece.numbers)
        return None
    return piece.number, compute_shard(piece, directory, features, key)


def compute_missing(
    directory: Path, jobs: Sequence[ShardJob], finished: Finished, features: Features, key: str, map_pieces: MapPieces
) -> Iterator[int]:
    """Compute `jobs` except `finished`; yield the number of each.

    Numbers of jobs are consecutive. A file is written as soon as its shards are there, so there are few small files at
    once.
    """
    compute = functools.partial(compute_piece, directory=directory, features=features, key=key)
    sizes = dict(finished.num_bytes)
    merges: deque[Merge] = deque()
    begin = end = num_bytes = 0  # shards of the next file, as positions in `jobs`

    def form_files() -> None:
        """Form files of the shards whose sizes are known."""
        nonlocal begin, end, num_bytes
        while end < len(jobs) and jobs[end].number in sizes:
            num_bytes += sizes[jobs[end].data_of]
            end += 1
            if num_bytes >= FILE_BYTES or end == len(jobs):
                merges.extend(_form_file(directory, range(jobs[begin].number, jobs[end - 1].number + 1), finished))
                begin, num_bytes = end, 0

    def pieces() -> Iterator[ShardJob | Merge]:
        for job in jobs:
            while merges:
                yield merges.popleft()
            if job.number not in finished.num_bytes:
                yield job

    form_files()
    for done in map_pieces(compute, pieces()):
        if done:
            sizes.update([done])
            form_files()
            yield done[0]
    for _ in map_pieces(compute, merges):
        pass
    if features.storage == "flac":  # readers of audio compute features by these settings
        write_feature_settings(directory, dataclasses.replace(features, num_jobs=0, executor="local"))


def _form_file(directory: Path, numbers: range, finished: Finished) -> list[Merge]:
    """Return the merge that makes a file; split finished files with other borders."""
    if finished.files.get(numbers[0]) == numbers:
        return []
    for number in numbers:
        if len(finished.files.get(number, ())) > 1 and (header := read_header(directory, number)):
            split_file(directory, header, header.numbers)
    return [Merge(numbers)] if len(numbers) > 1 else []


def collect(directory: Path, numbers: range) -> tuple[dict[str, Moments], list[Drop], int]:
    """Merge the manifests of shards `numbers` into index, columns and table.

    Returns summed moments, drops, and a count.
    """
    moments: dict[str, Moments] = {}
    drops: list[Drop] = []
    rows = []
    num_utterances = 0
    with writing_columns(directory) as columns, open(directory / INDEX, "wb") as index:
        for file, entry, record in read_records(directory, numbers):
            rows.append(shard_row(entry.number, entry.data_of, file, entry.spans))
            where = f"{directory}: shard {entry.number:06d}"
            utterances = [parse_line(line, where) for line in record.lines.split("\n") if line]
            lines = record.lines.encode()
            index.write(lines)
            columns.add(entry.number, utterances, lines)
            add_moments(moments, record.moments)
            drops += record.drops
            num_utterances += len(utterances)
    np.save(directory / TABLE, shard_table(rows))
    return moments, drops, num_utterances
