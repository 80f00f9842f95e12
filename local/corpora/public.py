"""Public corpora; lhotse's preparers read three of them.

LibriSpeech (PART/SPEAKER/CHAPTER/*.flac, *.trans.txt), Multilingual LibriSpeech (mls_english/SET/audio/SPEAKER/BOOK),
TED-LIUM 3 (legacy/SET/sph, stm), The People's Speech (SET/PART.json and SET/PART/*.flac), and Common Voice (en/SET.tsv
and en/clips/*.mp3, all releases).
"""

from __future__ import annotations

import contextlib
import io
import os
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asrtool.data.manifests.manifest import read_lines
from asrtool.data.manifests.validator import Entry
from asrtool.errors import AsrtoolError
from asrtool.local.corpus import ROLES, Corpus, Release
from asrtool.local.layouts.finish import by_recording, write_utterances
from asrtool.local.releases.releases import find_file, find_files
from asrtool.local.utterances import staging, warn_of_unknown
from asrtool.settings.data import Data

if TYPE_CHECKING:
    from lhotse import SupervisionSegment

LIBRISPEECH = Release("librispeech", "LibriSpeech (OpenSLR 12, 31)", ("*.trans.txt", "*.flac"))
MLS = Release("mls", "Multilingual LibriSpeech, English (OpenSLR 94)", ("mls_english*/metainfo.txt",))
TEDLIUM = Release("tedlium", "TED-LIUM 3 (OpenSLR 51)", ("legacy/*/stm/*.stm", "legacy/*/sph/*.sph"))
PEOPLES_SPEECH = Release("peoples_speech", "The People's Speech", ("train/*.json",))
COMMON_VOICE = Release("commonvoice", "Common Voice, English", ("en/*.tsv", "en/clips/*.mp3"))
ROLE_OF = {"train": "train", "validation": "dev", "test": "test"}  # folder of The People's Speech -> role
ADVICE = "the corpus does not name them: take dev and test from sets of other corpora for a fair comparison"


@dataclass
class _Set:
    """Parts of a corpus with one role."""

    recordings: list[Entry] = field(default_factory=list)
    segments: list[SupervisionSegment] = field(default_factory=list)
    part_of: dict[str, str] = field(default_factory=dict)  # recording -> name of its part


class _ReadByLhotse(Corpus):
    """Corpus that lhotse reads part by part; a part is test-other, for example."""

    roles = ROLES

    @abstractmethod
    def read(self, corpus: Path, stage: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield name, role and manifests of each part; `stage` is for temporary files."""

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/ROLE for each role with a part; ref.stm is labelled by part.

        Raises AsrtoolError if lhotse cannot read the release, or too much of a part cannot be used.
        """
        from lhotse.audio.utils import AudioLoadingError

        sets: dict[str, _Set] = {}
        (release,) = self.releases
        try:
            # lhotse draws progress bars on standard error, even into a log.
            with staging() as stage, contextlib.redirect_stderr(io.StringIO()):
                for name, role, manifests in self.read(corpus, stage):
                    found = sets.setdefault(role, _Set())
                    for recording in manifests.pop("recordings"):
                        entry = recording.to_dict()
                        for source in entry["sources"]:
                            source["source"] = os.path.abspath(source["source"])
                        found.recordings.append(entry)
                        found.part_of[entry["id"]] = name
                    found.segments += manifests.pop("supervisions")
        except (AudioLoadingError, AssertionError, ValueError, KeyError, TypeError, FileNotFoundError) as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise AsrtoolError(
                f"{corpus / release.name}: lhotse cannot read {release.title}: {type(error).__name__}: {reason}",
                f"compare the folder with docs/how-to/published-corpora.md, and check paths.{release.key}",
            ) from error
        for role in (role for role in self.roles if role in sets):
            utterances = by_recording(sets[role].segments)
            write_utterances(out / role, sets[role].recordings, utterances, [], data, sets[role].part_of.__getitem__)


class LibriSpeech(_ReadByLhotse):
    """LibriSpeech and mini LibriSpeech: read books at 16 kHz.

    All parts in the folder are read.
    """

    name = "librispeech"
    title = "LibriSpeech"
    licence = "CC BY 4.0"
    releases = (LIBRISPEECH,)
    train_hours = 961.0  # hours of its three training parts
    labels = (("test-clean", "clean"), ("test-other", "other"))

    def read(self, corpus: Path, stage: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield the parts in the folder."""
        from lhotse.recipes import prepare_librispeech

        release = corpus / LIBRISPEECH.name
        for folder in dict.fromkeys(path.parents[2] for path in find_files(release, "*-*.trans.txt")):
            if not folder.is_relative_to(release):
                raise AsrtoolError(f"{release}: its transcripts are of one speaker or chapter", "give the folder above")
            role = folder.name.partition("-")[0]
            if role in self.roles:
                yield folder.name, role, prepare_librispeech(folder.parent, dataset_parts=folder.name)[folder.name]


class Mls(_ReadByLhotse):
    """English part of Multilingual LibriSpeech: read books at 16 kHz."""

    name = "mls"
    title = "MLS English"
    licence = "CC BY 4.0"
    releases = (MLS,)
    train_hours = 44659.0

    def read(self, corpus: Path, stage: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield its three sets."""
        from lhotse.recipes import prepare_mls

        folder = find_file(corpus, MLS, MLS.holds[0]).parent
        link = stage / folder.name  # beside the folder may be other languages
        link.symlink_to(folder.absolute())
        sets = prepare_mls(stage, opus=folder.name.endswith("opus"))["english"]
        for role in self.roles:
            for recording in sets[role]["recordings"]:
                for source in recording.sources:
                    source.source = str(folder / Path(source.source).relative_to(link))
            yield role, role, sets[role]


class TedLium(_ReadByLhotse):
    """TED-LIUM 3, legacy split: talks at 16 kHz; a talk is a speaker."""

    name = "tedlium"
    title = "TED-LIUM 3"
    licence = "CC BY-NC-ND 3.0"
    releases = (TEDLIUM,)
    train_hours = 452.0

    def read(self, corpus: Path, stage: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield the sets in the folder."""
        from lhotse.recipes import prepare_tedlium

        root = find_file(corpus, TEDLIUM, TEDLIUM.holds[0]).parents[3]
        existing = [role for role in self.roles if (root / "legacy" / role).is_dir()]
        # Joins words that the stm splits: they 're.
        sets = prepare_tedlium(root, dataset_parts=existing, normalize_text="kaldi")
        yield from ((role, role, sets[role]) for role in existing)


class PeoplesSpeech(_ReadByLhotse):
    """The People's Speech: speech of many kinds at 16 kHz.

    Speakers are unknown, so each session counts as one.
    """

    name = "peoples_speech"
    title = "The People's Speech"
    licence = "CC BY and CC BY-SA, by part"
    releases = (PEOPLES_SPEECH,)

    def read(self, corpus: Path, stage: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield the parts of train, validation and test in the folder."""
        from lhotse import Recording, SupervisionSegment

        sessions = set()
        for path in find_files(corpus / PEOPLES_SPEECH.name, "*.json"):
            recordings, segments = [], []
            for session in read_lines(path, dict):
                speaker = str(session["identifier"]).replace(" ", "_")
                sessions.add(speaker)
                for _, text, name in zip(*session["training_data"].values(), strict=True):
                    audio = path.with_suffix("") / name
                    recording = Recording.from_file(audio, audio.stem)
                    recordings.append(recording)
                    where = (recording.id, recording.id, 0.0, recording.duration, 0)
                    segments.append(SupervisionSegment(*where, text, "English", speaker))
            manifests = {"recordings": recordings, "supervisions": segments}
            yield f"{path.parent.name}-{path.stem}", ROLE_OF[path.parent.name], manifests
        warn_of_unknown(sessions, (), self.name, ADVICE)


class CommonVoice(Corpus):
    """English part of Common Voice: sentences read at 32 or 48 kHz.

    features.resample brings them to one rate.
    """

    name = "commonvoice"
    title = "Common Voice English"
    licence = "CC0 1.0"
    releases = (COMMON_VOICE,)
    roles = ROLES

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/ROLE for each of train.tsv, dev.tsv and test.tsv in the folder."""
        from asrtool.local.layouts.manifest import prepare_manifest

        folder = find_file(corpus, COMMON_VOICE, COMMON_VOICE.holds[0]).parent
        for role in self.roles:
            if (folder / f"{role}.tsv").is_file():
                prepare_manifest(folder / f"{role}.tsv", out / role, data, role)
