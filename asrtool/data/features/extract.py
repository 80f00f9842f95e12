"""Compute features from audio, one shard in one process."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import soundfile
from lhotse import Recording, SupervisionSegment
from lhotse.audio import AudioLoadingError, DurationMismatchError, audio_backend
from lhotse.augmentation import Speed

from asrtool.data.audio.remote import prefetched
from asrtool.data.features.cmvn import Moments, add_moments
from asrtool.data.features.feature_type import FeatureType
from asrtool.data.features.shard_plan import ShardJob, wrong_rate
from asrtool.data.manifests.manifest import Drop
from asrtool.data.manifests.speed_copies import copy_id
from asrtool.data.storage.index import NO_FIELDS, Utterance
from asrtool.data.storage.shard import CHANNELS, Keep, keeping_flac, keeping_samples, write_shard
from asrtool.data.storage.shard_manifest import new_folder, publish_shard
from asrtool.data.workers.processes import torch_threads
from asrtool.errors import AsrtoolError
from asrtool.settings.data import Features

UNREADABLE = (OSError, ValueError, AssertionError, soundfile.SoundFileError, AudioLoadingError, DurationMismatchError)


def compute_shard(job: ShardJob, directory: Path, features: Features, key: str) -> int:
    """Compute one shard, write it, and record that it is whole; return its bytes.

    Its files get their names when all are written. Raises AsrtoolError for a wrong sampling rate, and for features of
    another shape or that are not finite; OSError if the disk is full.
    """
    moments: dict[str, Moments] = {}
    drops: list[Drop] = []
    with new_folder(directory, job.number) as folder:
        with torch_threads(1), ExitStack() as stack:
            keeps: list[Keep] = []
            if job.keeps_audio:
                keeps.append(stack.enter_context(keeping_samples(folder, job.number)))
            if features.storage == "flac" and job.data_of == job.number:
                keeps.append(stack.enter_context(keeping_flac(folder, job.number, features.sampling_rate_hz)))
            items = _extract(job, features, keeps, moments, drops)
            utterances = write_shard(folder, job.number, items, features, job.speed)
        which = (job.number, job.data_of, key, job.digest)
        return publish_shard(folder, directory, which, utterances, moments, drops)


def _extract(
    job: ShardJob, features: Features, keeps: Sequence[Keep], moments: dict[str, Moments], drops: list[Drop]
) -> Iterator[tuple[Utterance, np.ndarray]]:
    """Yield each readable utterance with its (T, F) features; add sums and drops."""
    extractor: FeatureType = features.type.load()(features)
    rate_hz = features.sampling_rate_hz
    least = features.frame_length_ms / 1000 * rate_hz
    sources = job.sources(rate_hz)
    for (recording, segments), found in zip(sources, prefetched([source[0] for source in sources]), strict=True):
        try:
            audio = _load_audio(recording, found, features)
        except UNREADABLE as error:
            reason = why_unreadable(error)
            drops += [Drop(copy_id(segment.id, job.speed), "unusable audio", reason) for segment in segments]
            continue
        for segment in segments:
            begin = round(segment.start * rate_hz)
            row_S = audio[recording.channel_ids.index(segment.channel)]
            original_S = row_S[begin : begin + round(segment.duration * rate_hz)]
            is_copy = job.speed != 1 and len(original_S)
            samples_S = Speed(job.speed)(original_S, rate_hz) if is_copy else original_S
            # A copy of a too short utterance would have no audio on reading.
            if min(len(original_S), len(samples_S)) < least:
                detail = f"{len(samples_S)} samples are less than a frame"
                drops.append(Drop(copy_id(segment.id, job.speed), "too short", detail))
                continue
            feats_TF = extractor.extract(samples_S)
            _check_shape(feats_TF, features)
            utterance = _describe(segment, job, len(samples_S) / rate_hz, len(feats_TF))
            if not np.isfinite(feats_TF).all():
                raise AsrtoolError(
                    f"features of {utterance.id} hold NaN or infinity", f"listen to recording {utterance.recording}"
                )
            add_moments(moments, {utterance.speaker: Moments.of(feats_TF)})
            for keep in keeps:
                keep(utterance, samples_S)
            yield utterance, feats_TF


def why_unreadable(error: Exception) -> str:
    """Return an error of UNREADABLE as one line.

    lhotse adds lines about the call, and libsndfile gives some errors as a number.
    """
    text = str(getattr(error, "code", "")) if isinstance(error, soundfile.LibsndfileError) else str(error)
    return next(iter(text.splitlines()), type(error).__name__)


def _check_shape(feats_TF: np.ndarray, features: Features) -> None:
    """Raise AsrtoolError unless features have the shape of their settings."""
    if feats_TF.ndim != 2 or feats_TF.shape[1] != features.num_features:
        raise AsrtoolError(
            f"features.type = {features.type.name} gave an array of shape {feats_TF.shape},"
            f" expected (frames, {features.num_features}), the num_features of its settings",
            "correct `extract` or `num_features`, see docs/guide/extending.md",
        )


def _load_audio(planned: Recording, recording: Recording | OSError, features: Features) -> np.ndarray:
    """Return all samples of a recording, float32 (channels, samples).

    Row i is the i-th of its channel ids. `recording` is `planned` with the fetched bytes, or the error to raise.
    """
    if isinstance(recording, OSError):
        raise recording
    # libsndfile reads SPHERE; lhotse would call sph2pipe, which few machines have.
    with audio_backend("LibsndfileBackend") as backend:
        for name, file in zip(planned.sources, recording.sources, strict=True):
            if recording.transforms or file.type not in ("file", "memory"):
                continue
            info = backend.info(io.BytesIO(file.source) if file.type == "memory" else file.source)
            if info.samplerate != features.sampling_rate_hz:
                raise wrong_rate(f"{name.source} (recording {recording.id})", info.samplerate, features)
            if info.frames < recording.num_samples:
                raise ValueError(f"{name.source} has {info.frames} samples, expected {recording.num_samples}")
        return recording.load_audio()


def _describe(segment: SupervisionSegment, job: ShardJob, duration_s: float, num_frames: int) -> Utterance:
    custom = dict(segment.custom or {})
    return Utterance(
        id=copy_id(segment.id, job.speed),
        recording=segment.recording_id,
        channel=CHANNELS[segment.channel],
        start_s=segment.start / job.speed,
        duration_s=duration_s,
        speaker=copy_id(segment.speaker, job.speed),
        text=None,
        shard=job.number,
        num_frames=num_frames,
        corpus=custom.pop("corpus", ""),
        fields=custom or NO_FIELDS,
    )
