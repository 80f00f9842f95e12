"""Lhotse Shar: cuts.NNNNNN.jsonl.gz with recording.NNNNNN.tar, also at a URL.

Tars are read once. Audio stays in them: a recording's source is a part of its tar.
"""

from __future__ import annotations

import gzip
import io
import itertools
import json
import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from lhotse import AudioSource, Recording

from asrtool.data.audio.joined import describe_faults, parts_in, read_format
from asrtool.data.remote import transfer
from asrtool.data.remote.transfer import RemoteFile
from asrtool.errors import AsrtoolError
from asrtool.local.layouts.finish import write_set
from asrtool.local.layouts.lhotse import Cuts, check, not_mono, read_supervision, settle_length
from asrtool.local.utterances import clean_id
from asrtool.log import progress
from asrtool.settings.data import Data
from asrtool.url import Part, as_url, join

CUTS, AUDIO = "cuts.*.jsonl.gz", "recording.*.tar"
PIECE = 2**22  # bytes of a tar that are fetched at a time
Entry = dict[str, Any]
Audio: TypeAlias = tuple[Part, int, int, bool] | str  # place, samples, rate in Hz and whether it is joined; or a fault


def prepare_shar(folder: Path, out: Path, data: Data, label: str) -> None:
    """Write the manifest folder `out`, with ref.stm of that label, and ref.glm.

    A recording is named after its cut; the second of two equal ids is ID-2. Raises AsrtoolError if no shard exists,
    cuts are corrupt, too much cannot be used, or a server does not answer or refuses.
    """
    cuts = Cuts("cuts")
    for place, tar in progress(list(_shards(folder)), "read tars", unit="tar"):
        audio = _audio_of(tar)
        for number, entry in enumerate(_read_cuts(place), start=1):
            try:
                found = _recording(entry, audio, tar)
                supervisions = [read_supervision(each) for each in entry["supervisions"]]
                content = "" if isinstance(found, str) else found.sources[0].source
                cuts.add({**entry, "supervisions": supervisions}, found, content)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                what = f"{place}:{number}: no cut that can be read, {type(error).__name__}: {error}"
                raise AsrtoolError(what, "write the shards again") from error
    cuts.log_renamed(folder)
    recordings = (recording.to_dict() for recording in cuts.recordings.values())
    write_set(out, recordings, cuts.segments, cuts.drops, data, label)


def is_shar_folder(folder: Path) -> bool:
    """Return whether `folder`, a path or URL, holds shards with audio."""
    if url := as_url(folder):
        return all(transfer.version_of(join(url, name.replace("*", "000000"))) for name in (CUTS, AUDIO))
    return any(folder.glob(CUTS)) and any(folder.glob(AUDIO))


def _shards(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield URLs of the cuts and audio of each shard, file:///PATH on disk."""
    url = as_url(folder)
    base = url or folder.absolute().as_uri()
    names = transfer.names_in(url) if url else [path.name for path in folder.glob(CUTS)]
    if names is None:  # lhotse counts them from 0
        all_ = (CUTS.replace("*", f"{number:06d}") for number in itertools.count())
        names = list(itertools.takewhile(lambda name: transfer.version_of(join(base, name)), all_))
    numbers = sorted(match[1] for name in names if (match := re.fullmatch(r"cuts\.(\d+)\.jsonl\.gz", name)))
    if not numbers:
        raise AsrtoolError(f"{url or folder}: no cuts.000000.jsonl.gz", "give the folder that lhotse's to_shar wrote")
    for number in numbers:
        yield join(base, CUTS.replace("*", number)), join(base, AUDIO.replace("*", number))


def _read_cuts(place: str) -> list[Entry]:
    try:
        path = Part(place).path
        data = path.read_bytes() if path else transfer.read(place)[1]
        cuts: list[Entry] = [json.loads(line) for line in gzip.decompress(data).splitlines()]
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise AsrtoolError(f"{place}: no readable cuts: {error}", "write the shards again") from error
    return cuts


def _audio_of(tar: str) -> dict[str, list[Audio]]:
    """Return audio by cut id, in order; the empty id has the reason for others."""
    found: dict[str, list[Audio]] = {}
    try:
        with _open(tar) as file, tarfile.open(fileobj=file, mode="r|") as members:
            for member in members:
                name, _, suffix = member.name.rpartition(".")
                if suffix in ("json", "nometa"):
                    continue
                if suffix == "nodata":
                    found.setdefault(name, []).append(f"{tar}: has no audio of it")
                    continue
                part = Part(tar, member.offset_data, member.offset_data + member.size)
                audio = members.extractfile(member)
                assert audio, member.name
                found.setdefault(name, []).append(_look(part, audio.read()))
    except (OSError, tarfile.TarError) as error:
        found[""] = [f"{tar}: {error}"]
    return found


def _open(tar: str) -> BinaryIO:
    path = Part(tar).path
    return open(path, "rb") if path else io.BufferedReader(RemoteFile(tar, PIECE), PIECE)


def _look(part: Part, data: bytes) -> Audio:
    parts = parts_in(data)
    if any(each.fault for each in parts):
        return f"{part}: {describe_faults(parts)}"
    try:
        num_samples, rate_hz, _ = read_format(data, parts)
    except AsrtoolError as error:
        return f"{part}: {error.what}"
    return part, num_samples, rate_hz, len(parts) > 1


def _recording(cut: Entry, audio: dict[str, list[Audio]], tar: str) -> Recording | str:
    """Return the recording of a cut, or the reason of its absence."""
    check(cut, {"id": "a name"})
    if fault := not_mono(cut):
        return fault
    members = audio.get(str(cut["id"]))  # several cuts may have one id: they are in the order of the tar
    found = members.pop(0) if members else audio.get("", [f"{tar}: has no audio of it"])[0]
    if isinstance(found, str):
        return found
    part, num_samples, rate_hz, is_joined = found
    declared = cut["recording"]
    channels = declared.get("channel_ids") or [0]
    source = AudioSource(type="url", channels=channels, source=str(part))
    sizes = (declared["sampling_rate"], declared["num_samples"], declared["duration"])
    recording = Recording(clean_id(str(cut["id"])), [source], *sizes, channel_ids=channels)
    return settle_length(recording, num_samples, rate_hz, str(part), is_joined) or recording
