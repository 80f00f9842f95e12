"""Folders on servers: which manifests they hold, and copies of these."""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Iterator, Sequence
from pathlib import Path

from asrtool.data.remote import transfer
from asrtool.errors import AsrtoolError
from asrtool.local.utterances import staging
from asrtool.url import as_url, join

PLACE = "place.url"  # a file in a folder of corpora: the address of what would be linked there


def place_of(folder: Path) -> Path:
    """Return the address that `folder` stands for, or `folder` itself."""
    marker = folder / PLACE
    return Path(marker.read_text(encoding="utf-8").strip()) if marker.is_file() else folder


def names_there(url: str, likely: Sequence[str]) -> list[str]:
    """Return the files in the folder `url`, or the `likely` ones that exist."""
    names = transfer.names_in(url)
    return [name for name in likely if transfer.version_of(join(url, name))] if names is None else names


@contextlib.contextmanager
def manifests_of(folder: Path, kinds: tuple[str, ...]) -> Iterator[Path]:
    """Yield a folder with the manifests *KIND*.jsonl.gz, a copy for a URL.

    Raises AsrtoolError if not exactly one of each exists, and as transfer.fetch.
    """
    url = as_url(folder)
    if not url:
        yield folder
        return
    there = names_there(url, [f"{kind}.jsonl{suffix}" for kind in kinds for suffix in (".gz", "")])
    with staging() as copy:
        for kind in kinds:
            found = fnmatch.filter(there, f"*{kind}*.jsonl*")
            if len(found) != 1:
                expected = f"expected one, {kind}.jsonl.gz where the server has no lists (http)"
                what = f"{url}: {len(found)} files *{kind}*.jsonl.gz, {expected}"
                raise AsrtoolError(what, "give the address of a folder with one manifest of each")
            with (copy / found[0]).open("wb") as file:
                transfer.fetch(join(url, found[0]), file.write)
        yield copy
