"""URLs of files on servers (`http://`, `https://`, `s3://`) and of parts of files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from asrtool.errors import AsrtoolError

_URL = re.compile(r"(https?|s3):/+(?=[^/])", re.IGNORECASE)
_PART = re.compile(r"#bytes=(\d+)-(\d+)$")


def as_url(place: str | Path) -> str:
    """Return `place` as a URL; empty if it is a path.

    A Path has turned two slashes into one.
    """
    text = str(place)
    match = _URL.match(text)
    return f"{match[1].lower()}://{text[match.end() :]}" if match else ""


def refuse_address(path: str | Path) -> None:
    """Raise AsrtoolError if `path` is an address: only files can be read."""
    if url := as_url(path):
        raise AsrtoolError(f"{url}: an address, expected a file", f"fetch it first: curl -O {url}")


def join(url: str, *names: str) -> str:
    """Return the address of a file below the folder `url`."""
    return "/".join([url.rstrip("/"), *names])


def below(url: str, path: str) -> str:
    """Return the URL of the file `path` below the folder `url`, escaped.

    S3 keys are not escaped.
    """
    return join(url, path if url.startswith("s3:") else re.sub(r"[%?#]", lambda mark: f"%{ord(mark[0]):02X}", path))


@dataclass(frozen=True)
class Part:
    """Byte range of a file as an audio source: `URL#bytes=BEGIN-END`.

    END is excluded.
    """

    url: str
    begin: int = 0
    end: int | None = None

    def __str__(self) -> str:
        return self.url if self.end is None else f"{self.url}#bytes={self.begin}-{self.end}"

    @classmethod
    def parse(cls, text: str) -> Part:
        match = _PART.search(text)
        return cls(text[: match.start()], int(match[1]), int(match[2])) if match else cls(text)

    @property
    def path(self) -> Path | None:
        """Path of the file if it is on disk (`file:///...`)."""
        parts = urlsplit(self.url)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None
