"""The English part of Common Voice, all releases: en/SET.tsv and en/clips/*.mp3."""

from __future__ import annotations

from pathlib import Path

from asrtool.local.corpus import ROLES, Release
from asrtool.local.corpus import Corpus as Base
from asrtool.local.releases.releases import find_file
from asrtool.settings.data import Data

RELEASE = Release("commonvoice", "Common Voice, English", ("en/*.tsv", "en/clips/*.mp3"))


class Corpus(Base):
    """Read sentences at 32 or 48 kHz, which features.resample brings to one rate."""

    name = "commonvoice"
    title = "Common Voice English"
    releases = (RELEASE,)
    roles = ROLES

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/ROLE for each of train.tsv, dev.tsv and test.tsv that is there."""
        from asrtool.local.layouts.manifest import prepare_manifest

        folder = find_file(corpus, RELEASE, RELEASE.holds[0]).parent
        for role in self.roles:
            if (folder / f"{role}.tsv").is_file():
                prepare_manifest(folder / f"{role}.tsv", out / role, data, role)
