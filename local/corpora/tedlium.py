"""TED-LIUM 3, legacy split: legacy/SET/sph/*.sph and stm/*.stm."""

from __future__ import annotations

from pathlib import Path

from asrtool.local.corpus import ROLES, Release
from asrtool.local.corpus import Corpus as Base
from asrtool.local.published import part, reading, write_parts
from asrtool.local.releases.releases import find_file
from asrtool.settings.data import Data

RELEASE = Release("tedlium", "TED-LIUM 3 (OpenSLR 51)", ("legacy/*/stm/*.stm", "legacy/*/sph/*.sph"))


class Corpus(Base):
    """Talks at 16 kHz; a talk is a speaker."""

    name = "tedlium"
    title = "TED-LIUM 3"
    releases = (RELEASE,)
    roles = ROLES
    train_hours = 452.0

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/ROLE for its three sets."""
        from lhotse.recipes import prepare_tedlium

        release = corpus / RELEASE.name
        root = find_file(corpus, RELEASE, RELEASE.holds[0]).parents[3]
        there = [role for role in self.roles if (root / "legacy" / role).is_dir()]
        with reading(RELEASE, release):
            # Joins what is apart in the stm: they 're.
            manifests = prepare_tedlium(root, dataset_parts=there, normalize_text="kaldi")
            parts = [part(role, role, manifests[role]) for role in there]
        write_parts(out, parts, data, self.roles)
