"""A folder of x.wav, x.flac or x.sph with x.txt beside it, at any depth, to manifests.

The recording is named by its path below the folder, with - for /. The speaker is the folder the file is in; files that
lie in the top folder are taken for one speaker each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from lhotse import SupervisionSegment

from asrtool.corpus.manifest import Drop, check_fraction, write_manifests
from asrtool.corpus.settings import Data
from asrtool.errors import AsrtoolError
from local.references import NO_RULES_GLM, format_reference
from local.releases import find_files
from local.text_rules import normalise_plain
from local.utterances import look_at, make_recording, normalise_all, read_lines, usable_audio

SUFFIXES = (".wav", ".flac", ".sph")


def prepare_folder(folder: Path, out: Path, data: Data, label: str) -> None:
    """Write the manifest folder `out`, with ref.stm, whose segments have that label, and ref.glm.

    The sampling rate is that of most files. Raises AsrtoolError when there is no pair, or too much cannot be used.
    """
    drops: list[Drop] = []
    files = {_id(folder, path): path for path in find_files(folder, "*") if path.suffix.lower() in SUFFIXES}
    texts = {_id(folder, path): path for path in find_files(folder, "*.txt")}
    if not files.keys() & texts.keys():
        raise AsrtoolError(
            f"{folder}: no audio file with a text beside it, expected x.wav (or .flac, .sph) and x.txt",
            "see docs/guide/corpora.md for the layouts that can be read",
        )
    drops += [Drop(id_, "no transcript", f"no {files[id_].stem}.txt beside it") for id_ in files.keys() - texts]
    drops += [Drop(id_, "no audio", f"no audio beside {texts[id_]}") for id_ in sorted(texts.keys() - files.keys())]
    lines = {id_: read_lines(texts[id_], id_, drops) for id_ in files if id_ in texts}
    paired = {id_: files[id_] for id_, text in lines.items() if text}
    if not paired:
        check_fraction(out, drops, 0, 0, data.bad_fraction)
    sounds = usable_audio(paired, usual_rate_hz(paired.values()), 1, out, drops)
    segments = normalise_all(
        (
            SupervisionSegment(
                id_, id_, 0.0, sound.duration_s, 0, " ".join(lines[id_]), speaker=_speaker(folder, id_, files[id_])
            )
            for id_, sound in sounds.items()
        ),
        normalise_plain,
        drops,
    )
    reference = format_reference((s.to_dict() for s in segments), dict.fromkeys(sounds, label))
    recordings = [make_recording(id_, sound) for id_, sound in sounds.items()]
    write_manifests(
        out, recordings, segments, drops, data.bad_fraction, {"ref.stm": reference, "ref.glm": NO_RULES_GLM}
    )


def usual_rate_hz(paths: Iterable[Path]) -> int:
    """The sampling rate that most of the readable files have; 0 when none is readable."""
    rates: Counter[int] = Counter()
    for path in paths:
        try:
            rates[look_at(path).sampling_rate_hz] += 1
        except AsrtoolError:
            continue  # set aside, with its fault, when it is looked at in earnest
    return rates.most_common(1)[0][0] if rates else 0


def _id(folder: Path, path: Path) -> str:
    return "-".join("-".join(path.relative_to(folder).with_suffix("").parts).split())


def _speaker(folder: Path, id_: str, path: Path) -> str:
    return id_ if path.parent == folder else "-".join("-".join(path.parent.relative_to(folder).parts).split())
