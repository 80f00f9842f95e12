"""RT-03, English conversational telephone speech: LDC2007S10."""

from __future__ import annotations

from pathlib import Path

from asrtool.local.corpus import Corpus as Base
from asrtool.local.corpus import Release
from asrtool.local.nist_evaluation import prepare_evaluation, read_stm
from asrtool.local.releases.releases import by_stem, find_file, find_files
from asrtool.settings.data import Data

AUDIO, STM, GLM = "audio/eval03/english/cts/*.sph", "references/eval03/english/cts/*.stm", "trans_rules/en20030506.glm"
RELEASE = Release("LDC2007S10", "RT-03 audio and references", (AUDIO, STM, GLM))


class Corpus(Base):
    """Calls of Switchboard cellular and Fisher, to test on."""

    name = "rt03"
    title = "RT-03"
    releases = (RELEASE,)
    roles = ("test",)
    in_mini = True
    labels = (("SW", "Switchboard"), ("FI", "Fisher"))

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/test."""
        find_file(corpus, RELEASE, STM)
        stm = read_stm(sorted(find_files(corpus / RELEASE.name, STM)))
        glm = find_file(corpus, RELEASE, GLM).read_text(encoding="latin-1")
        files = by_stem(corpus / RELEASE.name, AUDIO)
        prepare_evaluation(stm, glm, files, out / "test", data)
