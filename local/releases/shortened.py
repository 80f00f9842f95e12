"""Decode files once that lhotse cannot read in full: shorten, or joined files."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from asrtool.data.audio.joined import find_lossless, read_parts, write_lossless
from asrtool.data.audio.sphere import read_header, read_sphere
from asrtool.data.manifests.manifest import Drop
from asrtool.data.workers.processes import num_cores, process_map
from asrtool.errors import AsrtoolError
from asrtool.log import progress

if TYPE_CHECKING:
    from asrtool.local.utterances import Sound

BYTES_A_SAMPLE = 0.95  # bytes of FLAC: Fisher's 113 thousand million samples take about 107 GB
# Samples that become FLAC in a second of CPU (docs/decisions/manifests.md).
RATES_HZ = {"sph2pipe": 5e7, "desphere": 1.2e6}
FLOAT_BYTES = 4  # bytes of a sample; joined files may need them
GB = 1e9
PIECE_BYTES = 2**16


def decode_shortened(sounds: Mapping[str, Sound], folder: Path, drops: list[Drop]) -> dict[str, Sound]:
    """Return `sounds` with decoded files in `folder`; failures go to `drops`.

    Files that were decoded before are kept; a killed process costs its file. Raises AsrtoolError if there is too
    little room.
    """
    headers = {id_: read_header(sound.path) for id_, sound in sounds.items() if sound.path.suffix.lower() == ".sph"}
    ids = [id_ for id_, h in headers.items() if h.is_shortened]
    ids += [id_ for id_, sound in sounds.items() if sound.num_parts > 1]
    stems = {id_: _stem(folder, id_, sounds[id_].path) for id_ in ids}
    todo = [id_ for id_ in ids if not find_lossless(stems[id_])]
    faults: dict[str, str] = {}
    if todo:
        _check_disk_space(folder, [sounds[id_] for id_ in todo])
        files = [(sounds[id_].path, stems[id_]) for id_ in todo]
        with process_map(__name__, min(num_cores(), len(todo))) as map_:
            results = progress(map_(decode, files), "decode audio", len(todo), "file")
            faults = {id_: fault for id_, fault in zip(todo, results, strict=True) if fault}
    drops += [Drop(id_, "unusable audio", fault) for id_, fault in faults.items()]
    decoded = {id_: find_lossless(stem) for id_, stem in stems.items()}
    return {
        id_: dataclasses.replace(sound, path=decoded.get(id_) or sound.path)
        for id_, sound in sounds.items()
        if id_ not in faults
    }


def _stem(folder: Path, id_: str, source: Path) -> Path:
    """Return the path to decode `source` to: id, size, and a hash of its ends."""
    with open(source, "rb") as file:
        digest = hashlib.sha256(file.read(PIECE_BYTES))
        size_bytes = file.seek(0, os.SEEK_END)
        file.seek(max(0, size_bytes - PIECE_BYTES))
        digest.update(b"%d" % size_bytes + file.read())
    if source.suffix.lower() != ".sph":
        digest.update(b"2")  # earlier files had float audio in 16 bits, and are not used
    return folder / f"{id_}-{digest.hexdigest()[:16]}"


def cost_of_decoding(num_samples: int) -> tuple[float, float]:
    """Return about the CPU hours and bytes of disk for so many samples."""
    return num_samples / RATES_HZ[_program()] / 3600, num_samples * BYTES_A_SAMPLE


def _program() -> str:
    return "sph2pipe" if shutil.which("sph2pipe") else "desphere"


def decode(file: tuple[Path, Path]) -> str:
    """Decode a file losslessly to a path without suffix; return its fault or ''."""
    import soundfile

    source, stem = file
    try:
        samples, rate = read_sphere(source) if source.suffix.lower() == ".sph" else read_parts(source)
    except AsrtoolError as error:
        return error.what
    except (OSError, soundfile.SoundFileError) as error:
        return f"{source}: {error}"
    write_lossless(samples, rate, stem)
    return ""


def _check_disk_space(folder: Path, sounds: Sequence[Sound]) -> None:
    sizes = [(sound.num_samples * sound.num_channels, sound.num_parts > 1) for sound in sounds]
    cpu_hours, needed = cost_of_decoding(sum(num_samples for num_samples, _ in sizes))
    needed += sum(num_samples * (FLOAT_BYTES - BYTES_A_SAMPLE) for num_samples, is_joined in sizes if is_joined)
    place = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.is_dir())
    free = shutil.disk_usage(place).free
    logging.info(
        "%s: audio with shorten or of joined files is decoded once, by %s: about %.2g hours of CPU and %.3g GB of disk,"
        " %.3g GB are free", folder, _program(), cpu_hours, needed / GB, free / GB,
    )  # fmt: skip
    if needed > free:
        raise AsrtoolError(
            f"{folder}: audio with shorten or of joined files needs about {needed / GB:.3g} GB of disk when it is"
            f" decoded, {free / GB:.3g} GB are free",
            "free some space, or choose another place with --work",
        )
