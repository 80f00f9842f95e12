"""One shard of a feature set on disk: some hundred utterances, written once, read whole.

`cuts.NNNNNN.jsonl.gz` is a lhotse CutSet; the features are in `feats.NNNNNN.lca` (storage `lilcom`) or, as Lhotse
Shar, in `features.NNNNNN.tar` (storage `shar`). Both hold log energies that lilcom rounded to 1/32.
"""

from __future__ import annotations

import gzip
import json
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from lhotse import CutSet, Fbank, Features, LilcomChunkyWriter, MonoCut, SupervisionSegment
from lhotse.shar.readers.tar import iterate_tarfile_pairwise
from lhotse.shar.utils import fill_shar_placeholder
from lhotse.shar.writers.array import ArrayTarWriter

from asrtool.corpus.index import RERUN, Utterance
from asrtool.corpus.settings import Features as FeatureSettings
from asrtool.errors import AsrtoolError

CHANNELS = ("A", "B")
Store = Callable[[str, np.ndarray, Features], None]


def write_shard(
    directory: Path, number: int, items: Iterable[tuple[Utterance, np.ndarray]], settings: FeatureSettings
) -> list[Utterance]:
    """Write utterances and their (T, F) features as shard `number`; returns the utterances.

    The same items give the same bytes, at any time and place.
    """
    utterances, cuts = [], []
    with _archive(directory, number, settings.storage) as store:
        for utterance, feats_TF in items:
            features = Features(
                type=Fbank.name,
                num_frames=utterance.num_frames,
                num_features=settings.num_features,
                frame_shift=settings.frame_shift_ms / 1000,
                sampling_rate=settings.sampling_rate_hz,
                start=0,
                duration=utterance.duration_s,
                storage_type="",
                storage_path="",
                storage_key="",
                recording_id=utterance.recording,
                channels=CHANNELS.index(utterance.channel),
            )
            store(utterance.id, feats_TF, features)
            utterances.append(utterance)
            cuts.append(_cut(utterance, features))
    # A gzip header has room for a time; without it the bytes depend on the content alone.
    with gzip.GzipFile(_cuts_path(directory, number), "wb", mtime=0) as file:
        for cut in cuts:
            file.write((json.dumps(cut.to_dict(), ensure_ascii=False) + "\n").encode())
    return utterances


def read_shard(directory: Path, number: int) -> list[np.ndarray]:
    """The features of all utterances of shard `number`, each (T, F) float32, in storage order.

    Raises AsrtoolError naming the shard's files when they are missing or broken.
    """
    tar_path = _tar_path(directory, number)
    try:
        if tar_path.exists():
            return list(_read_tar(tar_path))
        cuts = CutSet.from_jsonl_lazy(_cuts_path(directory, number)).with_features_path_prefix(directory)
        return [cut.load_features() for cut in cuts]
    except (OSError, EOFError, ValueError, AssertionError, RuntimeError, tarfile.TarError, zlib.error) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)  # lhotse adds lines about the call
        raise AsrtoolError(f"{directory}: shard {number:06d} cannot be read: {reason}", RERUN) from error


def _read_tar(path: Path) -> Iterator[np.ndarray]:
    # CutSet.from_shar does the same but leaves the file open.
    with tarfile.open(path, "r:") as tar:
        for (data, name), (manifest, _) in iterate_tarfile_pairwise(tar):
            features = Features.from_dict(json.loads(manifest))
            fill_shar_placeholder(features, data, name)
            yield features.load()


@contextmanager
def _archive(directory: Path, number: int, storage: str) -> Iterator[Store]:
    """Yield a function that stores features and fills in where they are."""
    if storage == "shar":
        with ArrayTarWriter(str(_tar_path(directory, number)), shard_size=None, compression="lilcom") as tar:

            def store_shar(utterance_id: str, feats_TF: np.ndarray, features: Features) -> None:
                features.storage_type = "shar"
                tar.write(utterance_id, feats_TF, features)

            yield store_shar
        return
    name = f"feats.{number:06d}.lca"
    with LilcomChunkyWriter(directory / name) as archive:

        def store_lilcom(utterance_id: str, feats_TF: np.ndarray, features: Features) -> None:
            features.storage_type = archive.name
            features.storage_path = name  # without folder, so that a set can be moved
            features.storage_key = archive.write(utterance_id, feats_TF)

        yield store_lilcom


def _cut(utterance: Utterance, features: Features) -> MonoCut:
    channel = CHANNELS.index(utterance.channel)
    supervision = SupervisionSegment(
        id=utterance.id,
        recording_id=utterance.recording,
        start=0,
        duration=utterance.duration_s,
        channel=channel,
        text=utterance.text,
        speaker=utterance.speaker,
    )
    return MonoCut(
        id=utterance.id,
        start=0,
        duration=utterance.duration_s,
        channel=channel,
        supervisions=[supervision],
        features=features,
    )


def _cuts_path(directory: Path, number: int) -> Path:
    return directory / f"cuts.{number:06d}.jsonl.gz"


def _tar_path(directory: Path, number: int) -> Path:
    return directory / f"features.{number:06d}.tar"
