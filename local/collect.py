"""Releases to one folder of corpora: the configured ones are linked there, or the mini corpus is made."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from asrtool.corpus.settings import Data
from asrtool.errors import AsrtoolError
from asrtool.files import write_folder
from local.named import Named, known_releases, named_corpora
from local.releases import find_release

MakeMini = Callable[[Path, list[str]], None]


def collect_corpora(out: Path, data: Data, paths: Mapping[str, str], make_mini: MakeMini) -> None:
    """Make `out` hold one entry for each release that the corpora of `data` need; `paths` says where they lie, by key.

    When none of them has a path, `make_mini` is called with `out` and the names of the corpora.
    Raises AsrtoolError naming the key, the path and what was expected there.
    """
    named = named_corpora(data)
    releases = {release.key: release for item in named for release in item.releases}
    needed = [release for release in releases.values() if not release.is_optional]
    missing = [release for release in needed if not paths.get(release.key)]
    if missing == needed and _in_mini(named):
        make_mini(out, [item.corpus.name for item in named])
        return
    if missing:
        raise AsrtoolError(
            f"no path is configured for {', '.join(f'paths.{release.key} ({release.title})' for release in missing)}",
            f"set each with --set paths.KEY=DIR{_mini_hint(named)}",
        )
    targets = {r.name: find_release(r, paths[r.key]) for r in releases.values() if paths.get(r.key)}
    with write_folder(out, *(release.name for release in known_releases(data).values())) as temporary:
        for name, target in targets.items():
            (temporary / name).symlink_to(target, target_is_directory=True)
            logging.info("%s -> %s", name, target)


def _in_mini(named: Iterable[Named]) -> bool:
    return all(item.corpus.in_mini for item in named)


def _mini_hint(named: Iterable[Named]) -> str:
    return ", or leave all of them empty to use the mini corpus" if _in_mini(named) else ""
