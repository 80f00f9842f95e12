"""Audio at URLs: lhotse sources of type `url`, also parts (`URL#bytes=BEGIN-END`)."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import soundfile

from asrtool.data.audio.joined import describe_faults, encode, parts_in, read_parts
from asrtool.data.batches import load_ahead
from asrtool.data.remote import transfer
from asrtool.data.remote.transfer import CutShort, RemoteFile
from asrtool.url import Part

if TYPE_CHECKING:
    from lhotse import Recording

NUM_THREADS = 4  # files fetched at a time, by each process
HEADING = 2**16  # bytes fetched at a time to read a header


def fetched(recording: Recording) -> Recording:
    """Return `recording` with the bytes of its sources of type `url`.

    Raises OSError if one is missing or ends early, and AsrtoolError if its server does not answer or refuses.
    """
    if all(source.type != "url" for source in recording.sources):
        return recording
    sources = [
        dataclasses.replace(source, type="memory", source=_read(Part.parse(source.source)))
        if source.type == "url"
        else source
        for source in recording.sources
    ]
    return dataclasses.replace(recording, sources=sources)


def prefetched(recordings: Sequence[Recording]) -> Iterator[Recording | OSError]:
    """Yield each recording as `fetched` with prefetching, or its error.

    Raises AsrtoolError as that does.
    """
    if any(source.type == "url" for recording in recordings for source in recording.sources):
        with contextlib.closing(load_ahead(_or_error, recordings, 2 * NUM_THREADS, NUM_THREADS)) as loaded:
            yield from loaded
    else:
        yield from recordings


def _or_error(recording: Recording) -> Recording | OSError:
    try:
        return fetched(recording)
    except OSError as error:
        return error


def read_remote_header(url: str) -> tuple[int, int, int]:
    """Read only the header at a URL; return samples, rate in Hz and channels.

    Raises as `fetched`, and soundfile.LibsndfileError if it is no audio.
    """
    info = soundfile.info(RemoteFile(url, HEADING))
    return info.frames, info.samplerate, info.channels


def _read(part: Part) -> bytes:
    if part.path:
        with open(part.path, "rb") as file:
            file.seek(part.begin)
            data = file.read() if part.end is None else file.read(part.end - part.begin)
    else:
        data = transfer.read(part.url, part.begin, part.end)[1]
    if part.end is not None and len(data) < part.end - part.begin:
        raise CutShort(f"{part}: {len(data)} bytes, expected {part.end - part.begin}")
    parts = parts_in(data)
    fault = describe_faults(parts)
    if not fault:
        return data
    if part.end is None or any(each.fault for each in parts):  # no length of all parts is in the manifest
        raise OSError(f"{part}: {fault}")
    return encode(*read_parts(data))
