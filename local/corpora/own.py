"""A person's own data, each set in any of the layouts that can be read."""

from __future__ import annotations

import logging
from pathlib import Path

from asrtool.corpus.settings import Data
from asrtool.local.corpus import ROLES, Release
from asrtool.local.corpus import Corpus as Base

LAYOUTS = (
    "a Kaldi data directory, manifests, cuts or Shar of lhotse, a manifest (csv, tsv, jsonl), Parquet or Arrow files,"
    " or a folder of audio and text"
)


class Corpus(Base):
    """Data that nobody else has; without a development set a part of the training set is held out."""

    name = "own"
    title = "your data"
    releases = (
        Release("own_train", f"your training data: {LAYOUTS}", roles=("train",), is_one_folder=True),
        Release("own_dev", "your development data, the same", roles=("dev",), is_optional=True, is_one_folder=True),
        Release("own_test", "your test data, the same", roles=("test",), is_one_folder=True),
    )
    roles = ROLES

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/ROLE for each folder own_ROLE of `corpus`."""
        from asrtool.local.layouts.detect import find_set, prepare_any

        read: dict[Path, str] = {}
        for role in ROLES:
            source = corpus / f"own_{role}"
            if source.exists():
                other = read.setdefault(find_set(source, role).resolve(), role)
                if other != role:
                    logging.warning(
                        "%s is both own_%s and own_%s: RESULTS WILL LOOK BETTER THAN THEY ARE", source, other, role
                    )
                prepare_any(source, out / role, data, self.name, role)
