"""Hub5'00: LDC2002S09 audio and LDC2002T43 references; segments from the stm."""

from __future__ import annotations

from pathlib import Path

from asrtool.local.corpus import Corpus as Base
from asrtool.local.corpus import Release
from asrtool.local.nist_evaluation import compare_pem, prepare_evaluation, read_stm
from asrtool.local.releases.releases import by_stem, find_file
from asrtool.settings.data import Data

STM, GLM, PEM = "hub5e00.english.000405.stm", "*_hub5.glm", "hub5e_00.pem"
AUDIO = Release("LDC2002S09", "Hub5'00 audio", ("english/*.sph",))
REFERENCES = Release("LDC2002T43", "Hub5'00 references", (STM, GLM))


class Corpus(Base):
    """Calls of Switchboard and CallHome, to test on."""

    name = "hub5"
    title = "Hub5'00"
    releases = (AUDIO, REFERENCES)
    roles = ("test",)
    in_mini = True
    labels = (("SW", "Switchboard"), ("EN", "CallHome"))

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/test. Raises AsrtoolError when pem and stm differ, too."""
        stm = read_stm([find_file(corpus, REFERENCES, STM)])
        compare_pem(stm, find_file(corpus, AUDIO, PEM), self.title, data.bad_fraction)
        glm = find_file(corpus, REFERENCES, GLM).read_text(encoding="latin-1")
        files = by_stem(corpus / AUDIO.name, "english/*.sph")
        prepare_evaluation(stm, glm, files, out / "test", data)
