"""LibriSpeech, and mini LibriSpeech: PART/SPEAKER/CHAPTER/*.flac with *.trans.txt, read by lhotse."""

from __future__ import annotations

from pathlib import Path

from asrtool.corpus.settings import Data
from local.corpus import ROLES, Release
from local.corpus import Corpus as Base
from local.published import part, reading, write_parts
from local.releases import find_files

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
        from lhotse.recipes import prepare_librispeech

        release = corpus / RELEASE.name
        folders = dict.fromkeys(path.parents[2] for path in find_files(release, "*-*.trans.txt"))
        parts = []
        for folder in folders:
            role = folder.name.partition("-")[0]
            if role in self.roles:
                with reading(RELEASE, release):
                    manifests = prepare_librispeech(folder.parent, dataset_parts=folder.name)
                parts.append(part(folder.name, role, manifests[folder.name]))
        write_parts(out, parts, data, self.roles)
