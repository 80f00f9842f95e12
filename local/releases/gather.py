"""Gather releases in one folder of links, or make the mini corpus."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from asrtool.errors import AsrtoolError
from asrtool.files import write_folder, write_text
from asrtool.local.corpus import TEXT, Named, Release, known_releases, named_corpora
from asrtool.local.releases.releases import PLACE, find_release
from asrtool.settings import registry
from asrtool.settings.config import Place
from asrtool.settings.data import Data
from asrtool.url import as_url

MakeMini = Callable[[Path, list[str]], None]
UNPACKED = "unpacked"  # folder beside that of corpora, for what was in tar files


def collect_corpora(
    out: Path, data: Data, paths: Mapping[str, Place], make_mini: MakeMini, extra_text: Sequence[str] = ()
) -> None:
    """Make `out` hold one entry for each release that `data` and extra texts need.

    `paths` are their places by key. A release in several places is a folder of numbered links. Tar files are unpacked
    beside `out`. Without any path, `make_mini` is called with `out` and the names of the corpora. Raises AsrtoolError
    naming the key, the path and what was expected there.
    """
    named = named_corpora(data, extra_text)
    _check_files(extra_text)
    releases = {release.key: release for item in named for release in item.releases}
    given = {key: paths.get(key, "") for key in releases}
    places = {
        key: [path for path in ((place,) if isinstance(place, str) else place) if path] for key, place in given.items()
    }
    missing = [release for release in releases.values() if not release.is_optional and not places[release.key]]
    if not any(places.values()) and all(item.corpus.in_mini for item in named):
        make_mini(out, [item.corpus.name for item in named])
        return
    if missing:
        raise AsrtoolError(
            f"no path is configured for {', '.join(f'paths.{release.key} ({release.title})' for release in missing)}",
            "set each with --set paths.KEY=PLACE" + _other_ways(named, missing),
        )
    unpacked = out.absolute().parent / UNPACKED
    targets = {r.name: find_release(r, places[r.key], unpacked) for r in releases.values() if places[r.key]}
    _check_apart(out, targets)
    with write_folder(out, *(release.name for release in known_releases(data).values())) as temporary:
        for name, folders in targets.items():
            _link(temporary / name, folders)
            logging.info("%s -> %s", name, ", ".join(as_url(folder) or str(folder) for folder in folders))


def _other_ways(named: Sequence[Named], missing: Sequence[Release]) -> str:
    """Return advice for those who lack a release."""
    for_text = [release for item in named if item.roles == (TEXT,) for release in item.releases]
    ways = ", or leave out the further text with --set lm.extra_text=[]" if {*missing} & {*for_text} else ""
    in_mini = all(item.corpus.in_mini for item in named)
    return ways + (", or leave all of them empty to use the mini corpus" if in_mini else "")


def _check_files(extra_text: Sequence[str]) -> None:
    """Check early that extra texts which are not corpora are files."""
    for name in extra_text:
        if name not in registry.names("corpus") and not Path(name).is_file():
            what = "a folder" if Path(name).is_dir() else "no such file"
            known = ", ".join(registry.names("corpus"))
            raise AsrtoolError(f"lm.extra_text: {name}: {what}", f"name a file of sentences, or one of {known}")


def _check_apart(out: Path, targets: Mapping[str, Sequence[Path]]) -> None:
    """Raise AsrtoolError if `out` is in a folder to link: the tree would be endless."""
    real = out.resolve()
    for name, folders in targets.items():
        for folder in folders:
            if real.is_relative_to(folder.resolve()):
                fault = f"{name}: {folder} holds the work directory {real.parent}, expected the two apart"
                raise AsrtoolError(fault, "choose another place with --work")


def _link(name: Path, folders: Sequence[Path]) -> None:
    """Link folders; several keep their names, since patterns may contain them."""
    if len(folders) > 1:
        for number, folder in enumerate(folders, start=1):
            _link(name / str(number) / ("" if as_url(folder) else folder.name), [folder])
    elif url := as_url(folders[0]):
        write_text(name / PLACE, url + "\n")
    else:
        name.parent.mkdir(parents=True, exist_ok=True)
        name.symlink_to(folders[0], target_is_directory=True)
