"""Peak memory and CPU time of the parent of `asrtool features`: all but the shards themselves, which are faked.

    python benchmarks/features_parent.py 210000
    python benchmarks/features_parent.py 2100000

So many training utterances, at three speeds, in calls of 180 with two speakers each. A shard is a record and an archive
as long as it would be, of zeros without blocks on disk; archives are put together as they are, but not copied. Audio is
known by its contents, as in the work folder of `asrtool run`; a file of audio holds its name.
"""

from __future__ import annotations

import dataclasses
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from asrtool.data.features import compute_sets as features_module
from asrtool.data.features import compute_shards, merge_shards
from asrtool.data.features.cmvn import Moments
from asrtool.data.features.compute_sets import compute_features
from asrtool.data.features.shard_plan import ShardJob
from asrtool.data.manifests.manifest import format_line, write_sorted
from asrtool.data.manifests.sets import EvaluationSet, Sets, write_sets
from asrtool.data.manifests.validator import Entry
from asrtool.data.storage.flac import copy_id
from asrtool.data.storage.index import Utterance
from asrtool.data.storage.shard_manifest import Entry as ShardEntry
from asrtool.data.storage.shard_manifest import writing_shard
from asrtool.data.storage.shard_offsets import CUTS, LILCOM, TABLE
from asrtool.recipe.contents import contents_of
from asrtool.settings.data import Features

A_CALL = 180
BYTES_A_VALUE = 1.17  # of lilcom
SUM_F = np.random.default_rng(0).standard_normal(40)


def main() -> None:
    num = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for of_set, calls in (("train", num // A_CALL), ("dev", 1), ("test", 1)):
            write_sorted(folder / "m" / of_set, recordings(folder, calls), utterances(calls), [], 0.0, {})
        write_sets(folder / "m", Sets((EvaluationSet("test"),)))
        known = contents_of(folder).of_files
        before = resource.getrusage(resource.RUSAGE_SELF)
        began = time.process_time()
        setattr(compute_shards, "compute_shard", fake_shard)  # noqa: B010
        setattr(merge_shards, "_copy", fake_copy)  # noqa: B010
        setattr(features_module, "check_room", lambda *_: None)  # noqa: B010, fakes take little
        compute_features(folder / "m", folder / "f", Features(num_jobs=1), code="c", digest_files=known)
        sizes = sorted(path.stat().st_size for path in (folder / "f" / "train").glob("feats.*"))
        print(
            f"{len(np.load(folder / 'f' / 'train' / TABLE)):,} shards of the training set in {len(sizes):,} archives of"
            f" {sizes[0] / 2**20:.0f} to {sizes[-1] / 2**20:.0f} MiB, {sum(sizes) / 1e9:.0f} GB; files in its folder:"
            f" {len(list((folder / 'f' / 'train').iterdir())):,}; the smallest archive but one has"
            f" {sizes[1] / 2**20:.0f} MiB"
        )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(
            f"{num:,} utterances: {peak / 2**20:.2f} GiB at the peak, {before.ru_maxrss / 2**20:.2f} before,"
            f" {time.process_time() - began:.0f} s CPU"
        )


def recordings(folder: Path, num: int) -> list[Entry]:
    for n in range(num):
        (folder / f"fe_03_{n:05d}.sph").write_text(str(n))
    return [
        {
            "id": f"fe_03_{n:05d}",
            "sources": [{"type": "file", "channels": [0, 1], "source": f"{folder}/fe_03_{n:05d}.sph"}],
            "sampling_rate": 8000, "num_samples": 4800000, "duration": 600.0, "channel_ids": [0, 1],
        }
        for n in range(num)
    ]  # fmt: skip


def utterances(calls: int) -> Iterator[tuple[Entry, str]]:
    for n in range(calls):
        call = f"fe_03_{n:05d}"
        for k in range(A_CALL):
            side = "AB"[k % 2]
            yield format_line(
                {
                    "id": f"{call}-{side}-{k:04d}-{k + 1:06d}", "recording_id": call,
                    "start": 3.3 * k, "duration": 3.25, "channel": k % 2,
                    "text": "yeah i know what you mean by that", "speaker": f"{call}-{side}",
                    "custom": {"corpus": "fisher"},
                }
            )  # fmt: skip


def fake_shard(job: ShardJob, directory: Path, features: Features, key: str) -> int:
    moments, listed = {}, []
    for source in job.group.sources(features.sampling_rate_hz):
        for s in source.segments:
            who = copy_id(s.speaker, job.speed)
            moments[who] = Moments(30000, SUM_F, SUM_F**2)
            where = (s.recording_id, "AB"[s.channel], s.start / job.speed, s.duration / job.speed)
            listed.append(Utterance(copy_id(s.id, job.speed), *where, who, None, job.number, 325, "fisher"))
    with writing_shard(directory, job.number, job.data_of) as (folder, record):
        (folder / CUTS.format(job.number)).touch()
        with open(folder / LILCOM.format(job.number), "wb") as file:
            file.truncate(int(sum(one.num_frames for one in listed) * 40 * BYTES_A_VALUE))
        return record(key, job.digest, listed, moments, [])


def fake_copy(entry: ShardEntry, file: int, directory: Path, to_file: int, folder: Path) -> ShardEntry:
    (folder / CUTS.format(to_file)).touch()
    path = folder / LILCOM.format(to_file)
    begin = path.stat().st_size if path.exists() else 0
    end = begin + entry.spans[LILCOM][1] - entry.spans[LILCOM][0]
    with open(path, "ab") as out:
        out.truncate(end)
    return dataclasses.replace(entry, spans={CUTS: (0, 0), LILCOM: (begin, end)})


if __name__ == "__main__":
    main()
