"""CMU AN4: the published lists, with audio as .sph, .wav, .flac or .raw."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from asrtool.data.audio.joined import write_lossless
from asrtool.data.manifests.manifest import Drop
from asrtool.data.manifests.validator import Entry
from asrtool.errors import AsrtoolError
from asrtool.files import writing
from asrtool.local.corpus import Corpus as Base
from asrtool.local.corpus import Release
from asrtool.local.layouts.finish import write_utterances
from asrtool.local.releases.releases import find_files
from asrtool.local.text.text_rules import Rules, normalise
from asrtool.local.utterances import entries_of, usable_audio
from asrtool.settings.data import Data

SAMPLING_RATE_HZ = 16000
SUFFIXES = (".sph", ".wav", ".flac")
RELEASE = Release("an4", "CMU AN4", ("etc/an4_train.fileids", "etc/an4_test.fileids"))
LISTS = {"train": "an4_train", "test": "an4_test"}  # role -> published list

# AN4: <s> A B C </s> (an1-fash-b)
RULES = Rules(
    line=(
        (r"</?s>|<sil>", " "),
        (r"\([^()\s]*\)\s*$", " "),
        (r"\+\+[a-z_]+\+\+", " [noise] "),
    ),
)


class Corpus(Base):
    """Letters, digits and names read at 16 kHz."""

    name = "an4"
    title = "CMU AN4"
    licence = "free for any purpose, Copyright 1991-2005 Carnegie Mellon University"
    releases = (RELEASE,)
    roles = ("train", "test")
    train_hours = 0.7

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/train and `out`/test."""
        lists = next(find_files(corpus / RELEASE.name, RELEASE.holds[0]), None)
        top = lists.parents[1] if lists else corpus / RELEASE.name  # called an4 in the published tar file
        for role, published in LISTS.items():
            _prepare_list(top, published, out / role, data)


def _prepare_list(corpus: Path, published: str, out: Path, data: Data) -> None:
    """Write the manifest folder of a published list; speakers are folders of audio.

    Raises AsrtoolError if the list is missing or too much of it cannot be used.
    """
    drops: list[Drop] = []
    paths = {line.rpartition("/")[2]: line for line in _read_list(corpus / "etc" / f"{published}.fileids")}
    texts = _read_texts(corpus / "etc" / f"{published}.transcription")
    drops += [Drop(id_, "no audio", f"{id_} is not in {published}.fileids") for id_ in texts if id_ not in paths]
    drops += [Drop(id_, "no transcript", f"{id_} is not in {published}.transcription") for id_ in paths.keys() - texts]
    files = {}
    for id_, place in paths.items():
        path = _find_audio(corpus / "wav" / place, out / "audio")
        if path is None:
            drops.append(Drop(id_, "no audio", f"no {place} with {', '.join(SUFFIXES)} or .raw in {corpus / 'wav'}"))
        elif id_ in texts:
            files[id_] = path
    sounds = usable_audio(files, SAMPLING_RATE_HZ, 1, out, drops)
    utterances = [[_utterance(id_, sounds[id_].duration_s, texts[id_], paths[id_])] for id_ in sorted(sounds)]
    rule = functools.partial(normalise, rules=RULES)
    write_utterances(out, entries_of(sounds), utterances, drops, data, lambda _: "an4", rule)


def _utterance(id_: str, duration_s: float, text: str, place: str) -> Entry:
    from lhotse import SupervisionSegment

    speaker = f"an4-{Path(place).parent.name}"
    return SupervisionSegment(id_, id_, 0.0, duration_s, 0, text, speaker=speaker).to_dict()


def _read_list(path: Path) -> list[str]:
    if not path.is_file():
        raise AsrtoolError(f"{path}: missing", f"set paths.{RELEASE.key} to the folder that holds etc and wav")
    return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _read_texts(path: Path) -> dict[str, str]:
    """Return utterance id -> text as published."""
    texts = {}
    for number, line in enumerate(_read_list(path), start=1):
        match = re.fullmatch(r"(.*)\(([^()\s]+)\)", line)
        if not match:
            raise AsrtoolError(f"{path}, line {number}: {line!r}, expected WORDS (ID)", "fix the line")
        texts[match[2]] = match[1]
    return texts


def _find_audio(place: Path, converted: Path) -> Path | None:
    """Return the audio file of an entry; headerless .raw becomes FLAC in `converted`.

    Its samples have 16 bits, the low byte first.
    """
    for suffix in SUFFIXES:
        path = place.with_name(place.name + suffix)
        if path.is_file():
            return path
    raw, target = place.with_name(f"{place.name}.raw"), converted / f"{place.name}.flac"
    if not raw.is_file():
        return None
    import numpy as np

    with writing(target):
        write_lossless(np.fromfile(raw, "<i2")[:, None], SAMPLING_RATE_HZ, converted / place.name)
    return target
