"""Manifests to features: `manifests/SET` to `features/SET`, for each set that `manifests/sets.json` lists.

A set is cut into shards, and each shard is computed and written by one process on its own, so memory does not grow with
the corpus and the files do not depend on the number of processes.

    asrtool features exp/manifests exp/features --config recipes/swbd/conf/mini.toml
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asrtool.corpus.cmvn import Moments, add_moments, write_cmvn
from asrtool.corpus.extract import ShardJob, ShardResult, Source, compute_shard, wrong_rate
from asrtool.corpus.index import INDEX, SETTINGS, Utterance, write_feature_settings, write_index
from asrtool.corpus.ivector import Extractor
from asrtool.corpus.made_of import DIGESTS, is_made_of, join_texts, take_texts, write_made_of
from asrtool.corpus.made_of import FILE as MADE_OF
from asrtool.corpus.manifest import DROPPED, Drop, format_drops, read_manifests, rejected
from asrtool.corpus.processes import num_cores, process_map
from asrtool.corpus.sets import Sets, read_sets, write_sets
from asrtool.corpus.settings import Features
from asrtool.corpus.speaker_vectors import EXTRACTOR, fit_to_set, write_vectors
from asrtool.errors import AsrtoolError
from asrtool.files import remove_leftovers, write_folder, write_text
from asrtool.log import progress


@dataclass(frozen=True)
class Fitted:
    """What is found in the training set and used for all: sums to normalise by, and what makes speaker vectors."""

    everyone: Moments
    extractor: Extractor | None


def compute_features(
    manifests: Path, out: Path, features: Features, extractor: Extractor | None = None, code: str = ""
) -> None:
    """Write `out`/SET for each set, `out`/sets.json and, last, `out`/features.json; sets of an earlier run go.

    Where the sets hold all utterances of `manifests` already, they take the texts of these and stay otherwise, if
    `code`, the digest of the code that computes, is known and the one that made them.

    Speaker vectors are those of `extractor`; without, one is fitted to the training set, and written beside the sets.
    The training set gets a copy at each of `features.speeds`, and keeps its samples with `features.keep_audio`. An
    utterance whose audio cannot be read is set aside in `out`/SET/dropped.tsv. Raises AsrtoolError when that happens to
    more than `features.bad_fraction` of a set, for a missing or corrupt manifest, a wrong sampling rate, features that
    are not finite, and a full disk.
    """
    if extractor and extractor.size != features.speaker_vector:
        what = f"an extractor of {extractor.size} values, but features.speaker_vector is {features.speaker_vector}"
        raise AsrtoolError(what, f"compute these features with --set features.speaker_vector={extractor.size}")
    sets = read_sets(Path(manifests))
    if code and not extractor and is_made_of(out, features, code) and take_texts(out, Path(manifests), sets.names):
        logging.info("%s: has the features of all utterances of %s; only texts are written", out, manifests)
        _remove_others(out, sets)
        write_sets(out, sets)
        return
    for name in (SETTINGS, MADE_OF):
        (out / name).unlink(missing_ok=True)
    _remove_others(out, sets)
    fitted: Fitted | None = None
    for name in sets.names:
        sources = read_sources(Path(manifests) / name, features)
        jobs = plan_shards(sources, features.speeds if name == sets.train else (1.0,), features.shard_cuts)
        if name == sets.train and features.keep_audio:
            jobs = [dataclasses.replace(job, keeps_audio=True) for job in jobs]
        fitted = _write_set(out / name, Path(manifests) / name, jobs, features, fitted, extractor)
    (out / EXTRACTOR).unlink(missing_ok=True)
    if fitted and fitted.extractor:
        fitted.extractor.save(out / EXTRACTOR)
    write_sets(out, sets)
    if code and not extractor:
        write_made_of(out, code)
    # How many processes did it is no property of the features.
    write_feature_settings(out, dataclasses.replace(features, num_jobs=0))


def read_sources(directory: Path, features: Features) -> list[Source]:
    """The recordings of a manifest folder that have supervisions, in the order of the manifest.

    Raises AsrtoolError for a missing or corrupt manifest, a sampling rate other than that of `features` unless these
    resample, a channel that is neither 0 nor 1, and an utterance without speaker.
    """
    recordings, supervisions = read_manifests(directory)
    sources: dict[str, Source] = {}
    for recording in recordings:
        if recording.sampling_rate != features.sampling_rate_hz:
            if not features.resample:
                raise wrong_rate(f"{directory}: recording {recording.id}", recording.sampling_rate, features)
            recording = recording.resample(features.sampling_rate_hz)
        sources[recording.id] = Source(recording, [])
    for segment in supervisions:
        if segment.channel not in (0, 1):
            raise AsrtoolError(
                f"{directory}: utterance {segment.id} is on channel {segment.channel}, expected 0 (side A) or 1 (B)",
                "write each pair of channels as a recording of its own",
            )
        if not segment.speaker:
            raise AsrtoolError(f"{directory}: utterance {segment.id} has no speaker", "give it one")
        sources[segment.recording_id].segments.append(segment)
    return [source for source in sources.values() if source.segments]


def plan_shards(sources: Sequence[Source], speeds: Sequence[float], shard_cuts: int) -> list[ShardJob]:
    """Recordings in order, about `shard_cuts` utterances a shard and no recording in two; once for each speed.

    A function of its arguments alone. Copies at other speeds go to other shards, so that a batch seldom holds the same
    words twice.
    """
    groups: list[list[Source]] = [[]]
    for source in sources:
        if sum(len(other.segments) for other in groups[-1]) >= shard_cuts:
            groups.append([])
        groups[-1].append(source)
    pairs = [(speed, group) for speed in speeds for group in groups]
    return [ShardJob(number, speed, tuple(group)) for number, (speed, group) in enumerate(pairs)]


def _remove_others(out: Path, sets: Sets) -> None:
    if out.is_dir():
        remove_leftovers(out)  # those of `sets` alone would go when these are written
    for index in out.glob(f"*/{INDEX}"):
        if index.parent.name not in sets.names:
            shutil.rmtree(index.parent)


def _write_set(
    out: Path,
    manifests: Path,
    jobs: Sequence[ShardJob],
    features: Features,
    fitted: Fitted | None,
    extractor: Extractor | None,
) -> Fitted:
    """Write one set; returns what was fitted to the training set, which is this one where that is not known.

    An `extractor` that is there already is not fitted.
    """
    moments: dict[str, Moments] = {}
    drops: list[Drop] = []
    pool = process_map(compute_shard.__module__, min(len(jobs), features.num_jobs or num_cores()))
    with write_folder(out, "index.jsonl") as directory, pool as map_shards:
        np.save(directory / DIGESTS, join_texts(manifests, directory))
        compute = functools.partial(compute_shard, directory=directory, features=features)
        results = progress(map_shards(compute, jobs), f"features {out.name}", total=len(jobs), unit="shard")
        num_utterances = write_index(directory, _collect(results, moments, drops))
        _check_drops(out, drops, num_utterances, features.bad_fraction)
        everyone = fitted.everyone if fitted else functools.reduce(Moments.__add__, moments.values())
        write_cmvn(directory, moments, everyone)
        if fitted is None:
            size = features.speaker_vector
            fitted = Fitted(everyone, extractor or (fit_to_set(directory, size) if size else None))
        if fitted.extractor:
            write_vectors(directory, fitted.extractor, map_shards)
        (directory / DROPPED).write_text(format_drops(drops), encoding="utf-8")
    rejected(out).unlink(missing_ok=True)
    logging.info("%s: %d utterances, %d left out", out, num_utterances, len(drops))
    return fitted


def _collect(results: Iterable[ShardResult], moments: dict[str, Moments], drops: list[Drop]) -> Iterator[Utterance]:
    """Yield the utterances of all shards, adding up the rest on the way."""
    for result in results:
        add_moments(moments, result.moments)
        drops += result.drops
        yield from result.utterances


def _check_drops(out: Path, drops: Sequence[Drop], num_utterances: int, limit: float) -> None:
    fraction = len(drops) / max(1, len(drops) + num_utterances)
    if drops and (fraction > limit or not num_utterances):
        write_text(rejected(out), format_drops(drops))
        raise AsrtoolError(
            f"{out}: {len(drops)} of {len(drops) + num_utterances} utterances cannot be used ({fraction:.1%}, the limit"
            f" features.bad_fraction is {limit:.1%}); the first is {drops[0].id}: {drops[0].reason}: {drops[0].detail}",
            f"fix what {rejected(out)} lists, or raise features.bad_fraction",
        )
