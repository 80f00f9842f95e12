"""English part of Multilingual LibriSpeech: mls_english/SET/audio/SPEAKER/BOOK."""

from __future__ import annotations

from pathlib import Path

from asrtool.local.corpus import ROLES, Release
from asrtool.local.corpus import Corpus as Base
from asrtool.local.published import part, reading, write_parts
from asrtool.local.releases.releases import find_files
from asrtool.settings.data import Data

RELEASE = Release("mls", "Multilingual LibriSpeech, English (OpenSLR 94)", ("mls_english*/metainfo.txt",))


class Corpus(Base):
    """Read books at 16 kHz."""

    name = "mls"
    title = "MLS English"
    releases = (RELEASE,)
    roles = ROLES
    train_hours = 44659.0

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/ROLE for its three sets."""
        from lhotse.recipes import prepare_mls

        release = corpus / RELEASE.name
        for path in find_files(release, RELEASE.holds[0]):
            with reading(RELEASE, release) as stage:
                (stage / path.parent.name).symlink_to(path.parent.absolute())  # beside it may be other languages
                manifests = prepare_mls(stage, opus=path.parent.name.endswith("opus"))["english"]
                parts = [part(role, role, manifests[role], stage) for role in self.roles]
            write_parts(out, parts, data, self.roles)
            return
