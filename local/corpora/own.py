"""Custom data; each set may be in any supported layout."""

from __future__ import annotations

import logging
from pathlib import Path

from asrtool.local.corpus import ROLES, Release
from asrtool.local.corpus import Corpus as Base
from asrtool.local.releases.releases import PLACE
from asrtool.settings.data import Data

LAYOUTS = (
    "a Kaldi data directory, manifests, cuts or Shar of lhotse, a manifest (csv, tsv, jsonl), Parquet or Arrow files,"
    " or a folder of audio and text; or a list of several in any mix"
)


class Corpus(Base):
    """Custom data; without a dev set a part of the training set is held out."""

    name = "own"
    title = "your data"
    releases = (
        Release("own_train", f"your training data: {LAYOUTS}", roles=("train",), is_one_folder=True),
        Release("own_dev", "your development data, the same", roles=("dev",), is_optional=True, is_one_folder=True),
        Release("own_test", "your test data, the same", roles=("test",), is_one_folder=True),
    )
    roles = ROLES

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/ROLE for each folder own_ROLE of `corpus`, of one set or of several."""
        from asrtool.local.layouts.detect import find_set, prepare_sets

        read: dict[Path, str] = {}
        for role in ROLES:
            sources = linked_sets(corpus / f"own_{role}")
            for source in sources:
                other = read.setdefault(find_set(source, role).resolve(), role)
                if other != role:
                    logging.warning(
                        "%s is both own_%s and own_%s: results will look better than they are", source, other, role
                    )
            if sources:
                prepare_sets(sources, out / role, data, self.name, role)


def linked_sets(place: Path) -> list[Path]:
    """Return the sets linked at `place`: several are in folders 1, 2 ..."""
    if not place.exists():
        return []
    found = [] if place.is_symlink() or not place.is_dir() else list(place.iterdir())
    if not found or not all(path.is_dir() and path.name.isdecimal() for path in found):
        return [place]
    inside = {path: list(path.iterdir()) for path in sorted(found, key=lambda path: int(path.name))}
    if not all(len(names) == 1 and (names[0].is_symlink() or names[0].name == PLACE) for names in inside.values()):
        return [place]
    return [path if names[0].name == PLACE else names[0] for path, names in inside.items()]
