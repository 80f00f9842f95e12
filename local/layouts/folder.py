"""A folder of x.wav, x.flac, x.mp3 ... with x.txt beside it, at any depth, to manifests.

The recording is named by its path below the folder, with - for /. The speaker is the folder the file is in; files that
lie in the top folder are taken for one speaker each.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lhotse import SupervisionSegment

from asrtool.corpus.manifest import Drop, check_fraction
from asrtool.corpus.settings import Data
from asrtool.errors import AsrtoolError
from local.layouts.finish import write_set
from local.own_text import text_rule
from local.releases import find_files
from local.utterances import make_recording, normalise_all, one_word, read_lines, usable_audio

# Of what libsndfile reads and speech is kept in.
LOSSY = (".mp3", ".ogg", ".oga", ".opus")
SUFFIXES = (
    *(".wav", ".flac", ".sph", ".mp3", ".ogg", ".oga", ".opus"),
    *(".aiff", ".aif", ".aifc", ".au", ".snd", ".caf", ".w64", ".rf64"),
)


def prepare_folder(folder: Path, out: Path, data: Data, label: str) -> None:
    """Write the manifest folder `out`, with ref.stm, whose segments have that label, and ref.glm.

    Raises AsrtoolError when there is no pair, when two files would have one id, or when too much cannot be used.
    """
    drops: list[Drop] = []
    files, texts = _find_pairs(folder, drops)
    lines = {id_: read_lines(texts[id_], id_, drops) for id_ in files if id_ in texts}
    paired = {id_: files[id_] for id_, text in lines.items() if text}
    if not paired:
        check_fraction(out, drops, 0, 0, data.bad_fraction)
    sounds = usable_audio(paired, None, 1, out, drops)
    segments = normalise_all(
        (
            SupervisionSegment(
                id_, id_, 0.0, sound.duration_s, 0, " ".join(lines[id_]), speaker=_speaker(folder, id_, files[id_])
            )
            for id_, sound in sounds.items()
        ),
        text_rule(data),
        drops,
    )
    recordings = [make_recording(id_, sound) for id_, sound in sounds.items()]
    write_set(out, recordings, segments, drops, data, label)


def has_pairs(folder: Path) -> bool:
    """Whether there is a text with a file of audio beside it."""
    return any(text.with_suffix(suffix).is_file() for text in find_files(folder, "*.txt") for suffix in SUFFIXES)


def _find_pairs(folder: Path, drops: list[Drop]) -> tuple[dict[str, Path], dict[str, Path]]:
    """Id -> audio file and id -> text; those that lack the other are in `drops`."""
    sounds = _by_stem(path for path in find_files(folder, "*") if path.suffix.lower() in SUFFIXES)
    texts = _by_stem(find_files(folder, "*.txt"))
    if not sounds.keys() & texts.keys():
        raise AsrtoolError(
            f"{folder}: no audio file with a text beside it, expected x.txt and x with {', '.join(SUFFIXES)}",
            "convert audio of other formats (ffmpeg -i x.m4a x.flac); docs/guide/corpora.md has the other layouts",
        )
    names = _names(folder, sounds.keys() | texts.keys())
    drops += [Drop(names[s], "no transcript", f"no {s.name}.txt beside it") for s in sounds if s not in texts]
    drops += [Drop(names[s], "no audio", f"no audio beside {texts[s]}") for s in sorted(texts.keys() - sounds.keys())]
    return {names[stem]: path for stem, path in sounds.items()}, {names[stem]: path for stem, path in texts.items()}


def _by_stem(paths: Iterable[Path]) -> dict[Path, Path]:
    """Path without suffix -> path; of audio what is compressed with loss stands back."""
    found: dict[Path, Path] = {}
    for path in sorted(paths, key=lambda path: path.suffix.lower() in LOSSY):
        other = found.setdefault(path.with_suffix(""), path)
        if other != path and (path.suffix.lower() in LOSSY) == (other.suffix.lower() in LOSSY):
            raise AsrtoolError(f"{other} and {path.name}: two files for one recording", "keep one of them")
    return found


def _names(folder: Path, stems: Iterable[Path]) -> dict[Path, str]:
    """Path without suffix -> id."""
    names: dict[str, Path] = {}
    for stem in sorted(stems):
        id_ = _name(stem.relative_to(folder))
        other = names.setdefault(id_, stem)
        if other != stem:
            raise AsrtoolError(f"{other}.* and {stem}.*: both would be recording {id_}", "rename one of them")
    return {stem: id_ for id_, stem in names.items()}


def _name(path: Path) -> str:
    return one_word("-".join(path.parts))


def _speaker(folder: Path, id_: str, path: Path) -> str:
    return id_ if path.parent == folder else _name(path.parent.relative_to(folder))
