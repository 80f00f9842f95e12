"""Public corpora, which lhotse's preparers read, but for Common Voice.

LibriSpeech (PART/SPEAKER/CHAPTER/*.flac, *.trans.txt), Multilingual LibriSpeech (mls_english/SET/audio/SPEAKER/BOOK),
TED-LIUM 3 (legacy/SET/sph, stm), The People's Speech (SET/PART.json and SET/PART/*.flac), and Common Voice (en/SET.tsv
and en/clips/*.mp3, all releases).
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from asrtool.data.manifests.manifest import Drop
from asrtool.data.manifests.validator import Entry
from asrtool.errors import AsrtoolError
from asrtool.local.corpus import ROLES, Corpus, Release
from asrtool.local.layouts.finish import by_recording, write_spoken
from asrtool.local.releases.releases import find_file, find_files
from asrtool.local.utterances import staging, warn_of_unknown
from asrtool.settings.data import Data

if TYPE_CHECKING:
    from lhotse import Recording, SupervisionSegment


LIBRISPEECH = Release("librispeech", "LibriSpeech (OpenSLR 12, 31)", ("*.trans.txt", "*.flac"))
MLS = Release("mls", "Multilingual LibriSpeech, English (OpenSLR 94)", ("mls_english*/metainfo.txt",))
TEDLIUM = Release("tedlium", "TED-LIUM 3 (OpenSLR 51)", ("legacy/*/stm/*.stm", "legacy/*/sph/*.sph"))
PEOPLES_SPEECH = Release("peoples_speech", "The People's Speech", ("train/*.json",))
COMMON_VOICE = Release("commonvoice", "Common Voice, English", ("en/*.tsv", "en/clips/*.mp3"))
ROLE_OF = {"train": "train", "validation": "dev", "test": "test"}  # folder of The People's Speech -> role
ADVICE = "the corpus does not name them: take dev and test from sets of other corpora for a fair comparison"


class LibriSpeech(Corpus):
    """LibriSpeech and mini LibriSpeech: read books at 16 kHz.

    Whichever parts are there are read.
    """

    name = "librispeech"
    title = "LibriSpeech"
    releases = (LIBRISPEECH,)
    roles = ROLES
    train_hours = 961.0  # of its three training parts
    labels = (("test-clean", "clean"), ("test-other", "other"))

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/ROLE for each role that has a part."""
        from lhotse.recipes import prepare_librispeech

        release, parts = corpus / LIBRISPEECH.name, []
        for folder in dict.fromkeys(path.parents[2] for path in find_files(release, "*-*.trans.txt")):
            if not folder.is_relative_to(release):
                raise AsrtoolError(f"{release}: its transcripts are of one speaker or chapter", "give the folder above")
            role = folder.name.partition("-")[0]
            if role in self.roles:
                with reading(LIBRISPEECH, release):
                    manifests = prepare_librispeech(folder.parent, dataset_parts=folder.name)
                parts.append(part(folder.name, role, manifests[folder.name]))
        write_parts(out, parts, data, self.roles)


class Mls(Corpus):
    """English part of Multilingual LibriSpeech: read books at 16 kHz."""

    name = "mls"
    title = "MLS English"
    releases = (MLS,)
    roles = ROLES
    train_hours = 44659.0

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/ROLE for its three sets."""
        from lhotse.recipes import prepare_mls

        release = corpus / MLS.name
        folder = find_file(corpus, MLS, MLS.holds[0]).parent
        with reading(MLS, release) as stage:
            (stage / folder.name).symlink_to(folder.absolute())  # beside it may be other languages
            manifests = prepare_mls(stage, opus=folder.name.endswith("opus"))["english"]
            parts = [part(role, role, manifests[role], stage) for role in self.roles]
        write_parts(out, parts, data, self.roles)


class TedLium(Corpus):
    """TED-LIUM 3, legacy split: talks at 16 kHz; a talk is a speaker."""

    name = "tedlium"
    title = "TED-LIUM 3"
    releases = (TEDLIUM,)
    roles = ROLES
    train_hours = 452.0

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/ROLE for its three sets."""
        from lhotse.recipes import prepare_tedlium

        root = find_file(corpus, TEDLIUM, TEDLIUM.holds[0]).parents[3]
        there = [role for role in self.roles if (root / "legacy" / role).is_dir()]
        with reading(TEDLIUM, corpus / TEDLIUM.name):
            # Joins what is apart in the stm: they 're.
            manifests = prepare_tedlium(root, dataset_parts=there, normalize_text="kaldi")
            parts = [part(role, role, manifests[role]) for role in there]
        write_parts(out, parts, data, self.roles)


class PeoplesSpeech(Corpus):
    """The People's Speech: speech of many kinds at 16 kHz.

    Speakers are unknown, so a recording is one.
    """

    name = "peoples_speech"
    title = "The People's Speech"
    releases = (PEOPLES_SPEECH,)
    roles = ROLES

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/ROLE for train, validation and test; missing parts are left out."""
        from lhotse.recipes import peoples_speech

        release = corpus / PEOPLES_SPEECH.name
        found = {f"{path.parent.name}/{path.stem}": path for path in find_files(release, "*.json")}
        with reading(PEOPLES_SPEECH, release) as stage:
            done = stage / "done"
            done.mkdir()
            for name in peoples_speech.PEOPLES_SPEECH:
                (stage / name).parent.mkdir(exist_ok=True)
                if name in found:
                    (stage / name).symlink_to(found[name].with_suffix("").absolute())
                    (stage / f"{name}.json").symlink_to(found[name].absolute())
                else:  # lhotse reads all parts but those that it finds done
                    for what in ("recordings", "supervisions"):
                        (done / f"peoples_speech_{what}_{PurePath(name).name}.jsonl.gz").touch()
            manifests = peoples_speech.prepare_peoples_speech(stage, done)
            roles = {name: ROLE_OF[name.partition("/")[0]] for name in found}
            parts = [part(name.replace("/", "-"), roles[name], manifests[name], stage) for name in found]
        parts = [dataclasses.replace(item, supervisions=_by_session(item.supervisions)) for item in parts]
        warn_of_unknown({str(s.speaker) for item in parts for s in item.supervisions}, (), self.name, ADVICE)
        write_parts(out, parts, data, self.roles)


class CommonVoice(Corpus):
    """English part of Common Voice: sentences read at 32 or 48 kHz.

    features.resample brings them to one rate.
    """

    name = "commonvoice"
    title = "Common Voice English"
    releases = (COMMON_VOICE,)
    roles = ROLES

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/ROLE for each of train.tsv, dev.tsv and test.tsv that is there."""
        from asrtool.local.layouts.manifest import prepare_manifest

        folder = find_file(corpus, COMMON_VOICE, COMMON_VOICE.holds[0]).parent
        for role in self.roles:
            if (folder / f"{role}.tsv").is_file():
                prepare_manifest(folder / f"{role}.tsv", out / role, data, role)


def _by_session(supervisions: Sequence[SupervisionSegment]) -> list[SupervisionSegment]:
    """Return the utterances with their session as speaker."""
    return [
        dataclasses.replace(s, speaker=str(s.custom["session_id"]).replace(" ", "_"), custom=None)
        for s in supervisions
        if s.custom
    ]


@dataclass(frozen=True)
class Part:
    """Published part of a corpus, such as test-other, and its role."""

    name: str
    role: str
    recordings: Sequence[Entry]
    supervisions: Sequence[SupervisionSegment]


def part(name: str, role: str, manifests: dict[str, Any], stage: Path | None = None) -> Part:
    """Make a part of lhotse's manifests; the dictionary is emptied.

    Files behind links of the temporary `stage` get their targets' paths. Other links stay: the features know audio by
    its place in the work folder.
    """
    recordings = [_entry(recording, stage) for recording in manifests.pop("recordings")]
    return Part(name, role, recordings, list(manifests.pop("supervisions")))


def _entry(recording: Recording, stage: Path | None) -> Entry:
    entry: Entry = recording.to_dict()
    for source in entry["sources"]:
        path = Path(source["source"])
        link = next((link for link in path.parents if stage in link.parents and link.is_symlink()), None)
        path = Path(os.readlink(link), path.relative_to(link)) if link else path
        source["source"] = os.path.abspath(path)
    return entry


@contextlib.contextmanager
def reading(release: Release, folder: Path) -> Iterator[Path]:
    """Yield a temporary folder while lhotse reads `release`; errors become one line."""
    from lhotse.audio.utils import AudioLoadingError

    try:
        # lhotse draws its progress bars on standard error, be that a terminal or a log.
        with staging() as stage, contextlib.redirect_stderr(io.StringIO()):
            yield stage
    except (AudioLoadingError, AssertionError, ValueError, KeyError, TypeError, FileNotFoundError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise AsrtoolError(
            f"{folder}: lhotse cannot read {release.title}: {type(error).__name__}: {reason}",
            f"compare the folder with the layout in docs/guide/corpora.md, and check paths.{release.key}",
        ) from error


def write_parts(out: Path, parts: Sequence[Part], data: Data, roles: Sequence[str]) -> None:
    """Write `out`/ROLE for each role; reference segments are labelled by part.

    Raises AsrtoolError if too much of a part cannot be used.
    """
    for role in roles:
        chosen = [item for item in parts if item.role == role]
        if not chosen:
            continue
        drops: list[Drop] = []
        segments = (segment for item in chosen for segment in item.supervisions)
        label_of = {entry["id"]: item.name for item in chosen for entry in item.recordings}
        recordings = (entry for item in chosen for entry in item.recordings)
        write_spoken(out / role, recordings, by_recording(segments), drops, data, label_of.__getitem__)
