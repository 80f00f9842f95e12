"""Hub5'01: LDC2002S13 audio and reference, scored by the rules of Hub5'00.

The rules are in LDC2002T43. The release has audio in `english`, the partition in `doc/pems` and the reference in
`data/transcr`. Times have up to six decimals; partition and reference agree in hundredths.
"""

from __future__ import annotations

from pathlib import Path

from asrtool.local.corpora.hub5 import GLM
from asrtool.local.corpora.hub5 import REFERENCES as RULES
from asrtool.local.corpus import Corpus as Base
from asrtool.local.corpus import Release
from asrtool.local.nist_evaluation import compare_pem, prepare_evaluation, read_stm
from asrtool.local.releases.releases import by_stem, find_file
from asrtool.settings.data import Data

STM, PEM = "hub5e01.english.*.stm", "hub5e_01.pem"
RELEASE = Release("LDC2002S13", "Hub5'01 audio and reference", ("english/*.sph", STM, PEM))


class Corpus(Base):
    """Calls of Switchboard-1, Switchboard-2 and Switchboard cellular, to test on."""

    name = "hub5_01"
    title = "Hub5'01"
    releases = (RELEASE, RULES)
    roles = ("test",)

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/test. Raises AsrtoolError when pem and stm differ, too."""
        stm = read_stm([find_file(corpus, RELEASE, STM)])
        compare_pem(stm, find_file(corpus, RELEASE, PEM), self.title, data.bad_fraction)
        glm = find_file(corpus, RULES, GLM).read_text(encoding="latin-1")
        files = by_stem(corpus / RELEASE.name, "english/*.sph")
        prepare_evaluation(stm, glm, files, out / "test", data)
