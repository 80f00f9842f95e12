"""The People's Speech: SET/PART.json (a recording a line) and SET/PART/*.flac."""

from __future__ import annotations

import dataclasses
from pathlib import Path, PurePath

from asrtool.local.corpus import ROLES, Release
from asrtool.local.corpus import Corpus as Base
from asrtool.local.published import part, reading, write_parts
from asrtool.local.releases.releases import find_files
from asrtool.local.utterances import warn_of_unknown
from asrtool.settings.data import Data

RELEASE = Release("peoples_speech", "The People's Speech", ("train/*.json",))
ROLE_OF = {"train": "train", "validation": "dev", "test": "test"}  # folder of the release -> role
ADVICE = "the corpus does not name them: take dev and test from sets of other corpora for a fair comparison"


class Corpus(Base):
    """Speech of many kinds at 16 kHz; speakers are unknown, so one a recording."""

    name = "peoples_speech"
    title = "The People's Speech"
    releases = (RELEASE,)
    roles = ROLES

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/ROLE for train, validation and test; missing parts are left out."""
        from lhotse.recipes.peoples_speech import PEOPLES_SPEECH, prepare_peoples_speech

        release = corpus / RELEASE.name
        found = {f"{path.parent.name}/{path.stem}": path for path in find_files(release, "*.json")}
        with reading(RELEASE, release) as stage:
            done = stage / "done"
            done.mkdir()
            for name in PEOPLES_SPEECH:
                (stage / name).parent.mkdir(exist_ok=True)
                if name in found:
                    (stage / name).symlink_to(found[name].with_suffix("").absolute())
                    (stage / f"{name}.json").symlink_to(found[name].absolute())
                else:  # lhotse reads all parts but those that it finds done
                    for what in ("recordings", "supervisions"):
                        (done / f"peoples_speech_{what}_{PurePath(name).name}.jsonl.gz").touch()
            manifests = prepare_peoples_speech(stage, done)
            roles = {name: ROLE_OF[name.partition("/")[0]] for name in found}
            parts = [part(name.replace("/", "-"), roles[name], manifests[name], stage) for name in found]
        named = [
            dataclasses.replace(
                item,
                supervisions=[
                    dataclasses.replace(s, speaker=str(s.custom["session_id"]).replace(" ", "_"), custom=None)
                    for s in item.supervisions
                    if s.custom
                ],
            )
            for item in parts
        ]
        warn_of_unknown({str(s.speaker) for item in named for s in item.supervisions}, (), self.name, ADVICE)
        write_parts(out, named, data, self.roles)
