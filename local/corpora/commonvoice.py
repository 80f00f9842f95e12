"""The English part of Common Voice: en/SET.tsv and en/clips/*.mp3, read by lhotse."""

from __future__ import annotations

import os
from pathlib import Path

from asrtool.corpus.settings import Data
from asrtool.local.corpus import ROLES, Release
from asrtool.local.corpus import Corpus as Base
from asrtool.local.published import part, reading, write_parts
from asrtool.local.releases import find_file

RELEASE = Release("commonvoice", "Common Voice, English", ("en/*.tsv", "en/clips/*.mp3"))


class Corpus(Base):
    """Read sentences at 32 or 48 kHz, which features.resample brings to one rate."""

    name = "commonvoice"
    title = "Common Voice English"
    releases = (RELEASE,)
    roles = ROLES

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/ROLE for each of train.tsv, dev.tsv and test.tsv that is there."""
        from lhotse.recipes import prepare_commonvoice

        folder = find_file(corpus, RELEASE, RELEASE.holds[0]).parent
        there = [role for role in self.roles if (folder / f"{role}.tsv").is_file()]
        with reading(RELEASE, corpus / RELEASE.name) as stage:
            found = prepare_commonvoice(folder.parent, stage, folder.name, there, num_jobs=os.cpu_count() or 1)
            parts = [part(role, role, found[folder.name][role]) for role in there]
        write_parts(out, parts, data, self.roles)
