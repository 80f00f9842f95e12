"""Whether a WAV file is as long as its header says, which libsndfile does not mind."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

STREAMED = 0x7FFF0000  # bytes from which a size stands for one that was not known: sox and ffmpeg write it to pipes


def missing_bytes(path: Path) -> int:
    """How many bytes of the samples that the header of a WAV file declares are not there; 0 for any other file.

    Microsoft and IBM, Multimedia Programming Interface and Data Specifications 1.0 (1991): chunks of four letters, a
    size in little-endian order and so many bytes, padded to an even number.
    """
    with path.open("rb") as file:
        start = file.read(12)
        if start[:4] != b"RIFF" or start[8:] != b"WAVE":
            return 0
        size = _find_data(file)
        begin = file.tell()
    return 0 if size >= STREAMED else max(0, size - (path.stat().st_size - begin))


def _find_data(file: BinaryIO) -> int:
    """The declared size of the samples, at whose first byte `file` then is; 0 where there are none."""
    while len(chunk := file.read(8)) == 8:
        name, size = struct.unpack("<4sI", chunk)
        if name == b"data":
            return int(size)
        file.seek(size + size % 2, 1)
    return 0
