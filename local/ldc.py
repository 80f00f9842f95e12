"""Where releases lie: link the configured ones under one folder, their layout checked, or make the mini corpus."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from asrtool.config import Config
from asrtool.errors import AsrtoolError
from asrtool.files import write_folder


@dataclass(frozen=True)
class Release:
    """A corpus as its publisher lays it out. `holds` are patterns, each of which matches a file somewhere under it."""

    name: str  # folder under the corpus folder
    key: str  # in [paths]
    title: str
    holds: tuple[str, ...]


RELEASES = {
    release.key: release
    for release in (
        Release("LDC97S62", "ldc97s62", "Switchboard-1 Release 2 audio", ("sw[0-9]*.sph",)),
        Release(
            "swb_ms98_transcriptions",
            "swb_ms98_transcriptions",
            "MS-State transcripts of Switchboard-1",
            ("sw*-ms98-a-trans.text",),
        ),
        Release("LDC2004S13", "ldc2004s13", "Fisher part 1 audio", ("fe_03_*.sph",)),
        Release("LDC2004T19", "ldc2004t19", "Fisher part 1 transcripts", ("data/trans/*/fe_03_*.txt",)),
        Release("LDC2005S13", "ldc2005s13", "Fisher part 2 audio", ("fe_03_*.sph",)),
        Release("LDC2005T19", "ldc2005t19", "Fisher part 2 transcripts", ("data/trans/*/fe_03_*.txt",)),
        Release("LDC2002S09", "ldc2002s09", "Hub5'00 audio", ("english/*.sph",)),
        Release("LDC2002T43", "ldc2002t43", "Hub5'00 references", ("hub5e00.english.000405.stm", "*_hub5.glm")),
        Release("an4", "an4", "CMU AN4", ("etc/an4_train.fileids", "etc/an4_test.fileids")),
        Release("own_train", "own_train", "your training data", ()),
        Release("own_dev", "own_dev", "your development data", ()),
        Release("own_test", "own_test", "your test data", ()),
    )
}

CORPORA = tuple(release.name for release in RELEASES.values())  # what a corpus folder holds
HUB5 = ("ldc2002s09", "ldc2002t43")
NEEDED = {
    "swbd": ("ldc97s62", "swb_ms98_transcriptions", *HUB5),
    "fisher": ("ldc2004s13", "ldc2004t19", "ldc2005s13", "ldc2005t19", *HUB5),
    "an4": ("an4",),
    "own": ("own_train", "own_test"),
}
OPTIONAL = {"own": ("own_dev",)}
IN_MINI_CORPUS = frozenset({"swbd", "fisher"})


def collect_corpora(out: Path, config: Config, make_mini: Callable[[Path], None]) -> None:
    """Make `out` hold one entry a release that data.train and its test set need.

    Releases with a configured path are linked. When none of them has one, `make_mini` writes the mini corpus to `out`.
    Raises AsrtoolError naming the key, the path and what was expected there.
    """
    train = [corpus.name for corpus in config.data.train]
    keys = _needed(train)
    configured = [key for key in keys if config.paths.get(key)]
    if not configured and set(train) <= IN_MINI_CORPUS:
        logging.info(
            "no path to an LDC release is configured: making the mini corpus, %g h of SYNTHETIC speech, under %s",
            config.mini.train_hours,
            out,
        )
        make_mini(out)
        return
    missing = [key for key in keys if key not in configured]
    if missing:
        raise AsrtoolError(
            f"no path is configured for {', '.join(f'paths.{key} ({RELEASES[key].title})' for key in missing)}",
            f"set each with --set paths.KEY=DIR{_mini_hint(config)}",
        )
    optional = [key for corpus in train for key in OPTIONAL.get(corpus, ())]
    keys += [key for key in optional if config.paths.get(key)]
    link_releases(out, config.paths, keys)


def link_releases(out: Path, paths: Mapping[str, str], keys: Iterable[str]) -> None:
    """Make `out` a folder of links, one a release, named as the publisher names it."""
    targets = {RELEASES[key].name: find_release(RELEASES[key], paths[key]) for key in keys}
    with write_folder(out, *CORPORA) as temporary:
        for name, target in targets.items():
            (temporary / name).symlink_to(target, target_is_directory=True)
            logging.info("%s -> %s", name, target)


def find_release(release: Release, configured: str) -> Path:
    """The absolute folder of `release`. Raises AsrtoolError when it is not there or holds something else."""
    path = Path(configured).expanduser().absolute()
    if not path.is_dir():
        state = "is a file" if path.exists() else "does not exist"
        raise AsrtoolError(
            f"paths.{release.key}: {path} {state}, expected the folder of {release.name} ({release.title})",
            f"set paths.{release.key} to where the release is unpacked",
        )
    for pattern in release.holds:
        if next(find_files(path, pattern), None) is None:
            raise AsrtoolError(
                f"paths.{release.key}: {path} holds no {pattern}, expected the layout of {release.name}"
                f" ({release.title})",
                f"unpack the release whole and set paths.{release.key} to its top folder",
            )
    return path


def find_files(folder: Path, pattern: str) -> Iterator[Path]:
    """Files at any depth under `folder` whose path ends in `pattern`, sorted within a folder; links are followed.

    Discs of a release are often linked together from several places, and pathlib's ** passes such links by.
    """
    seen = set()
    for here, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        yield from (path for name in sorted(names) if (path := Path(here, name)).match(pattern))


def _needed(train: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(key for corpus in train for key in NEEDED[corpus]))


def _mini_hint(config: Config) -> str:
    if {corpus.name for corpus in config.data.train} <= IN_MINI_CORPUS:
        return ", or leave all of them empty to use the mini corpus"
    return ""
