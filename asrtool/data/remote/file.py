"""A file at an address, as an open file."""

from __future__ import annotations

import functools
import io

from asrtool.data.remote import transfer

NUM_KEPT = 4  # pieces


class RemoteFile(io.RawIOBase):
    """Seekable file at a URL; blocks are fetched as they are read, the last ones kept."""

    def __init__(self, url: str, piece_bytes: int) -> None:
        """Raises as transfer.fetch does; so does reading."""
        self._piece_bytes = piece_bytes
        self._fetch = functools.lru_cache(NUM_KEPT)(
            lambda number: transfer.read(url, number * piece_bytes, (number + 1) * piece_bytes)
        )
        self._size = self._fetch(0)[0].size
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = offset + (0, self._place, self._size)[whence]
        return self._place

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self._place >= self._size:
            return 0
        number, begin = divmod(self._place, self._piece_bytes)
        found = self._fetch(number)[1][begin : begin + len(buffer)]
        buffer[: len(found)] = found
        self._place += len(found)
        return len(found)
