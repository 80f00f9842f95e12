"""Interface of a file server, and its errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from asrtool.errors import AsrtoolError

CONNECT_S, ANSWER_S = 10.0, 30.0  # without a connection, without a byte
BLOCK = 2**20  # bytes at a time


class Missing(OSError):
    """There is no such file."""


class CutShort(OSError):
    """Less of a file comes than the server says that it has, each time."""


class Changed(OSError):
    """A file is no longer the one that was there."""


class Failed(Exception):
    """Error that may pass after a while."""


class Ended(Failed):
    """An answer that ends too early."""


@dataclass(frozen=True)
class Version:
    """Version of a file; if either field differs, it is another file."""

    size: int  # bytes
    tag: str  # the server's: ETag, else the time of the last change


@dataclass(frozen=True)
class Answer:
    """Answer of a server: the file's version, and its bytes."""

    version: Version
    blocks: Iterator[bytes]
    close: Callable[[], object]  # the connection, which others use again where all was read


class Server(Protocol):
    """Server of files; all methods raise Failed, Missing and AsrtoolError."""

    def get(self, url: str, begin: int, end: int | None) -> Answer:
        """The bytes from `begin` to before `end`, or to the end of the file."""

    def head(self, url: str) -> Version:
        """Without its bytes."""

    def names(self, url: str) -> list[str] | None:
        """Return the file names in the folder `url`; None if the server cannot list."""


def judge(url: str, status: int, reason: str) -> Exception:
    """Return the exception of an HTTP status."""
    if status in (404, 410):
        return Missing(f"{url}: no such file ({status} {reason})")
    if status == 416:
        return CutShort(f"{url}: ends before the bytes that were asked for")
    if status in (408, 429) or status >= 500:
        return Failed(f"{status} {reason}")
    if status in (401, 403):
        rights = "it needs s3:GetObject and s3:ListBucket" if url.startswith("s3:") else "see who may read it"
        return AsrtoolError(f"{url}: the server refuses access ({status} {reason})", f"see your credentials; {rights}")
    return AsrtoolError(f"{url}: the server answers {status} {reason}", "correct the address")
