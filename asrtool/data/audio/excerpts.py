"""Excerpts of the recordings of a manifest folder, for listening."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from asrtool.data.manifests.manifest import RECORDINGS, read_lines
from asrtool.data.manifests.validator import Entry


class Clips:
    """Reader of audio on this machine; nothing is fetched from a server."""

    def __init__(self, manifests: Path) -> None:
        """Raise AsrtoolError if `manifests` has no readable list of recordings."""
        self._recordings = {entry["id"]: entry for entry in read_lines(manifests / RECORDINGS, Entry)}

    def read(self, recording: str, channel: str, begin_s: float, end_s: float) -> tuple[np.ndarray, int] | None:
        """Return float32 samples (S,) of channel A or B, and their rate, or None.

        Samples are in [-1, 1]. Lhotse is loaded by the first call that finds the recording.
        """
        entry = self._recordings.get(recording)
        if entry is None:
            return None
        from lhotse import Recording
        from lhotse.audio.backend import audio_backend

        from asrtool.data.audio.remote import fetched
        from asrtool.data.features.extract import UNREADABLE
        from asrtool.url import Part

        found = Recording.from_dict(dict(entry))  # from_dict removes keys
        if any(source.type == "url" and Part.parse(source.source).path is None for source in found.sources):
            return None
        try:
            with audio_backend("LibsndfileBackend"):  # this backend reads SPHERE, too
                audio_CS = fetched(found).load_audio(offset=begin_s, duration=min(end_s, found.duration) - begin_s)
            samples_S = audio_CS[found.channel_ids.index("AB".index(channel.upper()))]
        except UNREADABLE:
            return None
        return np.ascontiguousarray(samples_S, dtype=np.float32), found.sampling_rate
