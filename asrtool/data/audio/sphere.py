"""NIST SPHERE audio: read and check headers, decode shorten.

libsndfile reads uncompressed SPHERE files itself; only files compressed with shorten (Fisher) need `read_sphere`.
"""

from __future__ import annotations

import io
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from asrtool.errors import AsrtoolError

if TYPE_CHECKING:
    import numpy as np

CODINGS = ("pcm", "ulaw", "mu-law", "mulaw", "alaw")
SHORTEN = "embedded-shorten-v2.00"
# Files are padded to whole blocks on some discs, so a little more than the header declares is no fault.
PADDING_BYTES = 1024
HINT = "fetch the file again from the release"


@dataclass(frozen=True)
class SphereHeader:
    """Header of a SPHERE file; `num_samples` a channel."""

    num_channels: int
    num_samples: int
    sampling_rate_hz: int
    is_shortened: bool
    sample_bytes: int
    header_bytes: int

    @property
    def data_bytes(self) -> int:
        """Bytes of the samples once uncompressed."""
        return self.num_samples * self.num_channels * self.sample_bytes


def read_header(path: Path) -> SphereHeader:
    """Read a header; AsrtoolError for other files and unknown codings."""
    fields, header_bytes = _read_fields(path)
    coding, _, compression = fields.get("sample_coding", "pcm").partition(",")
    if coding not in CODINGS or compression not in ("", SHORTEN):
        found = fields["sample_coding"]
        raise AsrtoolError(
            f"{path}: coding is {found!r}, expected {', '.join(CODINGS)} (with or without {SHORTEN})",
            "convert the file",
        )
    return SphereHeader(
        num_channels=_positive(path, fields, "channel_count"),
        num_samples=_positive(path, fields, "sample_count"),
        sampling_rate_hz=_positive(path, fields, "sample_rate"),
        is_shortened=bool(compression),
        sample_bytes=_positive(path, fields, "sample_n_bytes"),
        header_bytes=header_bytes,
    )


def check_sphere(path: Path) -> SphereHeader:
    """Check the size of a file by its header; return the header.

    Raises AsrtoolError with both sizes. The length of a shorten-compressed file shows only when it is decoded.
    """
    header = read_header(path)
    found_bytes = path.stat().st_size - header.header_bytes
    if header.is_shortened:
        return header
    if found_bytes < header.data_bytes:
        raise AsrtoolError(
            f"{path}: truncated, the header declares {header.data_bytes} bytes of samples, {found_bytes} are there",
            HINT,
        )
    if found_bytes > header.data_bytes + PADDING_BYTES:
        raise AsrtoolError(
            f"{path}: longer than its header says, {header.data_bytes} bytes of samples, {found_bytes} are there",
            HINT,
        )
    return header


def read_sphere(path: Path) -> tuple[np.ndarray, int]:
    """Return int16 samples (num_samples, num_channels) and the rate; decodes shorten.

    Uses sph2pipe if installed, about a hundred times faster, else the package desphere. Raises AsrtoolError for a
    file that cannot be decoded or is shorter than declared.
    """
    import soundfile

    header = read_header(path)
    if header.is_shortened:
        samples, rate = soundfile.read(io.BytesIO(_decode_shorten(path)), dtype="int16", always_2d=True)
    else:
        samples, rate = soundfile.read(path, dtype="int16", always_2d=True)
    samples = samples[: header.num_samples]
    if samples.shape != (header.num_samples, header.num_channels):
        raise AsrtoolError(
            f"{path}: truncated, the header declares {header.num_samples} samples of"
            f" {count_channels(header.num_channels)}, {samples.shape[0]} of {samples.shape[1]} are there",
            HINT,
        )
    return samples, rate


def _decode_shorten(path: Path) -> bytes:
    """Return the file as WAV."""
    sph2pipe = shutil.which("sph2pipe")
    if sph2pipe:
        done = subprocess.run([sph2pipe, "-f", "wav", "-p", str(path)], capture_output=True, check=False)
        if done.returncode:
            message = " ".join(done.stderr.decode(errors="replace").split())
            raise AsrtoolError(f"{path}: cannot be decoded: sph2pipe: {message}", HINT)
        return done.stdout
    import desphere

    try:
        return desphere.transcode_bytes(path.read_bytes())
    except desphere.DesphereError as error:
        raise AsrtoolError(f"{path}: cannot be decoded: {error}", HINT) from error


def _read_fields(path: Path) -> tuple[dict[str, str], int]:
    """Read header fields (name -> value) and the size of the header in bytes."""
    try:
        with path.open("rb") as file:
            start = file.read(16)
            size = start[8:16].strip()
            if not start.startswith(b"NIST_1A\n") or not size.isdigit() or int(size) < len(start):
                raise AsrtoolError(f"{path}: no SPHERE header, expected NIST_1A at the start", HINT)
            text = (start + file.read(int(size) - len(start))).decode("ascii", errors="replace")
    except OSError as error:
        raise AsrtoolError(f"{path}: cannot be read: {error.strerror}", "check the path and its permissions") from error
    body, end, _ = text.partition("\nend_head")
    if not end:
        raise AsrtoolError(f"{path}: truncated in its header, expected end_head", HINT)
    lines = (line.split(None, 2) for line in body.split("\n")[2:])
    return {parts[0]: parts[2].strip() for parts in lines if len(parts) == 3}, int(size)


def _positive(path: Path, fields: dict[str, str], name: str) -> int:
    value = fields.get(name, "")
    if not value.isdigit() or int(value) < 1:
        found = f"is {value!r}" if value else "is missing"
        raise AsrtoolError(f"{path}: {name} in the header {found}, expected a whole number above 0", HINT)
    return int(value)


def count_channels(num: int) -> str:
    """Return a number of channels in words."""
    return f"{num} channel{'' if num == 1 else 's'}"
