"""LibriSpeech and mini LibriSpeech: PART/SPEAKER/CHAPTER/*.flac, *.trans.txt."""

from __future__ import annotations

from pathlib import Path

from asrtool.local.corpus import ROLES, Release
from asrtool.local.corpus import Corpus as Base
from asrtool.local.published import part, write_parts
from asrtool.settings.data import Data

RELEASE = Release("librispeech", "LibriSpeech (OpenSLR 12, 31)", ("*.trans.txt", "*.flac"))


class Corpus(Base):
    """Read books at 16 kHz; whichever parts are there."""

    name = "librispeech"
    title = "LibriSpeech"
    releases = (RELEASE,)
    roles = ROLES
    train_hours = 961.0  # of its three training parts
    labels = (("test-clean", "clean"), ("test-other", "other"))

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/ROLE for each role that has a part."""
        from asrtool.local.layouts.trans import read_parts

        found = read_parts(corpus / RELEASE.name, RELEASE, lambda folder: _role(folder) in self.roles)
        write_parts(out, [part(folder.name, _role(folder), of_part) for folder, of_part in found], data, self.roles)


def _role(folder: Path) -> str:
    return folder.name.partition("-")[0]
