"""A Kaldi data directory (wav.scp, text, utt2spk, segments) to manifests, through lhotse's load_kaldi_data_dir.

lhotse reads a staged copy without the entries it would stop at. Recordings are named as in wav.scp and have one
channel, but for the two sides that sph2pipe takes out of a file, which are the channels of one recording.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from lhotse.kaldi import load_kaldi_data_dir

from asrtool.corpus.manifest import Drop, check_fraction
from asrtool.corpus.settings import Data
from asrtool.errors import AsrtoolError
from local.layouts.copies import copies_among, say_left_out
from local.layouts.finish import write_set
from local.layouts.pipe import run_pipes
from local.layouts.wav_scp import Entry, read_wav_scp
from local.own_text import Rule, text_rule
from local.utterances import Sound, make_recording, normalise_all, one_word, staging, times_run, usable_audio

SIDES = "reco2file_and_channel"
Value = TypeVar("Value")
Segments = dict[str, tuple[str, str, str]]  # utterance -> recording, start, end


def prepare_kaldi(directory: Path, out: Path, data: Data, label: str) -> None:
    """Write the manifest folder `out`, with ref.stm, whose segments have that label, and ref.glm.

    Raises AsrtoolError for a missing file, for what read_wav_scp refuses, or when too much cannot be used.
    """
    drops: list[Drop] = []
    sides = _read_table(directory / SIDES) if (directory / SIDES).is_file() else {}
    entries = read_wav_scp(directory, _read_table(directory / "wav.scp"), sides, data.allow_pipes)
    said = _read_table(directory / "text", allow_empty=True)
    texts = _originals(said)
    say_left_out(directory, said.keys() - texts.keys(), len(said))
    speakers = _read_table(directory / "utt2spk")
    segments = _originals(_read_segments(directory / "segments")) if (directory / "segments").is_file() else None
    wanted = {recording for recording, _, _ in segments.values()} if segments is not None else texts.keys()
    drops += [Drop(id_, "no transcript", f"{id_} has no utterance in text") for id_ in entries if id_ not in wanted]
    drops += [Drop(id_, "no audio", f"{id_} is not in wav.scp") for id_ in sorted(wanted - entries.keys())]
    entries = _run_commands({id_: entry for id_, entry in entries.items() if id_ in wanted}, out, drops)
    recordings = _usable_recordings(entries, out, drops)
    sounds = {id_: recordings[entry.recording][0] for id_, entry in entries.items() if entry.recording in recordings}
    if segments is None:
        segments = {id_: (id_, "0", repr(sound.duration_s)) for id_, sound in sounds.items()}
    segments = _usable_segments(segments, sounds, texts, drops)
    if not segments:
        check_fraction(out, drops, 0, 0, data.bad_fraction)
    with staging() as stage:
        _stage(stage, sounds, segments, texts, {id_: one_word(speakers.get(id_, id_)) for id_ in segments})
        rate_hz = max(sound.sampling_rate_hz for sound in sounds.values())  # at which lhotse rounds durations
        _, supervisions, _ = load_kaldi_data_dir(stage, rate_hz)
    assert supervisions is not None, f"{directory} was staged with segments"
    placed = (
        dataclasses.replace(s, recording_id=entries[s.recording_id].recording, channel=entries[s.recording_id].channel)
        for s in supervisions
    )
    normalised = normalise_all(placed, _kaldi_rule(data), drops)
    whole = [make_recording(id_, *recording) for id_, recording in recordings.items()]
    write_set(out, whole, normalised, drops, data, label)


def _originals(table: dict[str, Value]) -> dict[str, Value]:
    copies = copies_among(table)
    return {id_: value for id_, value in table.items() if id_ not in copies}


def _run_commands(entries: Mapping[str, Entry], out: Path, drops: list[Drop]) -> dict[str, Entry]:
    """Those of `entries` that are files, and the files that the commands of the others have written."""
    commands = {id_: entry.command for id_, entry in entries.items() if entry.command}
    written = run_pipes(commands, out / "audio", drops)
    return {
        id_: dataclasses.replace(entry, path=written.get(id_, entry.path))
        for id_, entry in entries.items()
        if not entry.command or id_ in written
    }


def _usable_recordings(entries: Mapping[str, Entry], out: Path, drops: list[Drop]) -> dict[str, tuple[Sound, int]]:
    """Recording -> its file and number of channels."""
    recordings = {}
    for num_channels in (1, 2):
        files = {entry.recording: entry.path for entry in entries.values() if entry.num_channels == num_channels}
        for id_, sound in (usable_audio(files, None, num_channels, out, drops) if files else {}).items():
            recordings[id_] = (sound, num_channels)
    return recordings


def _kaldi_rule(data: Data) -> Rule:
    """As of a person's own text; the full stop of an English letter before 's is none of its own (t._v.'s)."""
    rule = text_rule(data)
    if data.text_rules != "english":
        return rule
    return lambda text: rule(re.sub(r"(?<=[A-Za-z])\.(?='s)", "", text))


def _read_table(path: Path, allow_empty: bool = False) -> dict[str, str]:
    """Lines of id and value. Raises AsrtoolError for a missing file, a line without value, or an id given twice."""
    if not path.is_file():
        raise AsrtoolError(f"{path}: missing, expected a Kaldi data directory", "it needs wav.scp, text and utt2spk")
    table: dict[str, str] = {}
    for number, line in enumerate(_read(path, "replace" if allow_empty else "strict").splitlines(), start=1):
        fields = line.split(maxsplit=1)  # by blanks or a tab
        if not fields or (len(fields) == 1 and not allow_empty):
            raise AsrtoolError(f"{path}, line {number}: {line!r}, expected an id and a value", "fix the line")
        id_, value = fields[0], fields[1] if len(fields) == 2 else ""
        if id_ in table:
            raise AsrtoolError(f"{path}, line {number}: {id_} was there before", "make the ids unique")
        table[id_] = value.strip()
    return table


def _read(path: Path, errors: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig", errors=errors)
    except UnicodeDecodeError as error:
        number = error.object.count(b"\n", 0, error.start) + 1
        raise AsrtoolError(
            f"{path}, line {number}: byte 0x{error.object[error.start]:02x} is not UTF-8",
            "convert it, for example with iconv",
        ) from None


def _read_segments(path: Path) -> Segments:
    segments = {}
    for id_, value in _read_table(path).items():
        fields = value.split()
        try:
            recording, start, end = fields
            if not (math.isfinite(float(start)) and math.isfinite(float(end))):
                raise ValueError
        except ValueError:
            raise AsrtoolError(
                f"{path}: {id_} {value!r}, expected recording, start and end in seconds", "fix the line"
            ) from None
        segments[id_] = (recording, start, end)
    return segments


def _usable_segments(
    segments: Segments, sounds: Mapping[str, Sound], texts: Mapping[str, str], drops: list[Drop]
) -> Segments:
    kept = {}
    for id_, (recording, start, end) in segments.items():
        if recording not in sounds:
            continue
        sound = sounds[recording]
        end = repr(sound.duration_s) if float(end) < 0 or float(end) > sound.duration_s else end
        if id_ not in texts:
            drops.append(Drop(id_, "no text", f"{id_} is not in the file text"))
        elif times_run(id_, start, end, sound, drops):
            kept[id_] = (recording, start, end)
    drops += [Drop(id_, "no segment", "in text, but not in segments") for id_ in texts if id_ not in segments]
    return kept


def _stage(
    stage: Path, sounds: Mapping[str, Sound], segments: Segments, texts: Mapping[str, str], speakers: Mapping[str, str]
) -> None:
    _write_table(stage / "wav.scp", ((id_, os.path.abspath(sound.path)) for id_, sound in sounds.items()))
    # With durations given lhotse opens no audio file.
    _write_table(stage / "reco2dur", ((id_, repr(sound.duration_s)) for id_, sound in sounds.items()))
    _write_table(stage / "segments", ((id_, " ".join(place)) for id_, place in segments.items()))
    _write_table(stage / "text", ((id_, texts[id_]) for id_ in segments))
    _write_table(stage / "utt2spk", speakers.items())


def _write_table(path: Path, rows: Iterable[tuple[str, str]]) -> None:
    path.write_text("".join(f"{id_} {value}\n" for id_, value in rows), encoding="utf-8")
