"""A Kaldi data directory (wav.scp, text; optional utt2spk, segments) to manifests.

Recordings are named as in wav.scp and have one channel, but for the two sides that sph2pipe takes out of a file, which
are the channels of one recording. SQLite joins the tables in a temporary file, so memory does not grow with the
utterances. Times are as lhotse's load_kaldi_data_dir has them, and a test compares.
"""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import itertools
import math
import re
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from asrtool.data.manifests.manifest import Drop
from asrtool.data.manifests.validator import Entry as Utterance
from asrtool.errors import AsrtoolError
from asrtool.local.layouts.finish import log_left_out, lost_with_recording, originals_of, write_utterances
from asrtool.local.layouts.wav_scp import Entry, command_line, read_wav_scp, run_pipes
from asrtool.local.text.own_text import Rule, text_rule
from asrtool.local.utterances import Sound, recording_entry, usable_audio
from asrtool.settings.data import Data

SIDES = "reco2file_and_channel"
COPIES = """SELECT id FROM "{0}" AS copy
WHERE id GLOB 'sp[0-9.]*' AND EXISTS (
SELECT 1 FROM "{0}" WHERE id IN (original(copy.id), 'sp1.0-' || original(copy.id)))"""
UTTERANCES = """SELECT id, audio.recording, start_s, end_s, channel, duration_s, text.value, utt2spk.value
FROM place JOIN audio ON audio.name = place.recording JOIN text USING (id) LEFT JOIN utt2spk USING (id)
ORDER BY audio.recording, place.rowid"""


def prepare_kaldi(directory: Path, out: Path, data: Data, label: str) -> None:
    """Write the manifest folder `out`, with ref.stm of that label, and ref.glm.

    Raises AsrtoolError for a missing or malformed file, as read_wav_scp, or if too much cannot be used.
    """
    drops: list[Drop] = []
    with _open_database() as db:
        for name in (SIDES, "wav.scp"):
            _load(db, directory / name, is_optional=name == SIDES)
        places, sides = (dict(db.execute(f'SELECT id, value FROM "{name}"')) for name in ("wav.scp", SIDES))
        entries = read_wav_scp(directory, places, sides, data.allow_pipes)
        _load(db, directory / "text", allow_empty=True)
        _load(db, directory / "utt2spk", is_optional=True)
        _leave_out_copies(db, directory, drops)
        _load_places(db, directory / "segments")
        wanted = {name for (name,) in db.execute("SELECT DISTINCT recording FROM place")}
        without_text = (id_ for id_ in entries if id_ not in wanted)
        drops += [Drop(id_, "no transcript", f"{id_} has no utterance in text") for id_ in without_text]
        drops += [Drop(id_, "no audio", f"{id_} is not in wav.scp") for id_ in sorted(wanted - entries.keys())]
        entries = {id_: entry for id_, entry in entries.items() if id_ in wanted}
        recordings = _usable_recordings(entries, out, drops)
        for id_, entry in entries.items():
            if found := recordings.get(entry.recording):
                row = (id_, entry.recording, entry.channel, found[0].duration_s)
                db.execute("INSERT INTO audio VALUES (?, ?, ?, ?)", row)
        _list_partnerless(db, drops)
        # Durations are rounded to samples of the highest rate.
        rate_hz = max((sound.sampling_rate_hz for sound, _ in recordings.values()), default=1)
        whole = (recording_entry(id_, *recording) for id_, recording in recordings.items())
        write_utterances(out, whole, _by_recording(db, rate_hz), drops, data, lambda _: label, _kaldi_rule(data))


@contextlib.contextmanager
def _open_database() -> Iterator[sqlite3.Connection]:
    """Yield a database in a temporary file; AsrtoolError if its disk is full."""
    with contextlib.closing(sqlite3.connect("")) as db:
        db.create_function("original", 1, lambda id_: next(iter(originals_of(id_)), None), deterministic=True)
        db.execute("CREATE TABLE place (id TEXT PRIMARY KEY, recording TEXT, start_s REAL, end_s REAL)")
        db.execute("CREATE TABLE audio (name TEXT PRIMARY KEY, recording TEXT, channel INT, duration_s REAL)")
        try:
            yield db
        except sqlite3.OperationalError as error:
            what = f"{tempfile.gettempdir()}: no room for temporary files ({error})"
            raise AsrtoolError(what, "free some space, or set TMPDIR") from error


def _load(db: sqlite3.Connection, path: Path, allow_empty: bool = False, is_optional: bool = False) -> None:
    """Load lines of an id and a value into the table with the name of the file.

    `allow_empty` allows ids without a value, and bytes that are not UTF-8. Raises AsrtoolError naming the line.
    """
    db.execute(f'CREATE TABLE "{path.name}" (id TEXT PRIMARY KEY, value TEXT)')
    if is_optional and not path.is_file():
        return
    if not path.is_file():
        raise AsrtoolError(f"{path}: missing, expected a Kaldi data directory", "it needs wav.scp and text")
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}, line {number}"
            try:
                text = line.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace" if allow_empty else "strict")
            except UnicodeDecodeError as error:
                byte = error.object[error.start]
                raise AsrtoolError(
                    f"{where}: byte 0x{byte:02x} is not UTF-8", "convert it, for example with iconv"
                ) from None
            id_, value = [*text.split(None, 1), "", ""][:2]
            if not id_ or not (value or allow_empty):
                found = line.decode("utf-8", "replace").rstrip("\r\n")
                raise AsrtoolError(f"{where}: {found!r}, expected an id and a value", "fix the line")
            try:
                db.execute(f'INSERT INTO "{path.name}" VALUES (?, ?)', (id_, value.strip()))
            except sqlite3.IntegrityError:
                raise AsrtoolError(f"{where}: {id_} was there before", "make the ids unique") from None


def _leave_out_copies(db: sqlite3.Connection, directory: Path, drops: list[Drop]) -> None:
    """Remove copies at other speeds from the texts, and list them."""
    copies = [id_ for (id_,) in db.execute(COPIES.format("text"))]
    (num_all,) = db.execute("SELECT count(*) FROM text").fetchone()
    log_left_out(directory, copies, num_all, drops)
    db.executemany("DELETE FROM text WHERE id = ?", ((id_,) for id_ in copies))


def _load_places(db: sqlite3.Connection, segments: Path) -> None:
    """Load recordings and times of utterances; without `segments` each is a file.

    An end below 0 is the end of the recording. Speed copies are left out.
    """
    if not segments.is_file():
        db.execute("INSERT INTO place SELECT id, id, 0, -1 FROM text ORDER BY id")
        return
    _load(db, segments)
    rows = db.execute("SELECT id, value FROM segments ORDER BY rowid")
    db.executemany("INSERT INTO place VALUES (?, ?, ?, ?)", (_place(segments, *row) for row in rows))
    db.execute(f"DELETE FROM place WHERE id IN ({COPIES.format('segments')})")


def _place(segments: Path, id_: str, value: str) -> tuple[str, str, float, float]:
    try:
        recording, *times = value.split()
        start_s, end_s = map(float, times)
        if not (math.isfinite(start_s) and math.isfinite(end_s)):
            raise ValueError
    except ValueError:
        what = f"{segments}: {id_} {value!r}, expected recording, start and end in seconds"
        raise AsrtoolError(what, "fix the line") from None
    return id_, recording, start_s, end_s


def _usable_recordings(entries: Mapping[str, Entry], out: Path, drops: list[Drop]) -> dict[str, tuple[Sound, int]]:
    """Run commands; return recording -> its audio file and number of channels."""
    commands = {id_: entry.command for id_, entry in entries.items() if entry.command}
    written = run_pipes(commands, out / "audio", drops)
    there = {id_: entry for id_, entry in entries.items() if not entry.command or id_ in written}
    recordings = {}
    for num_channels in (1, 2):
        same_channels = {id_: entry for id_, entry in there.items() if entry.num_channels == num_channels}
        files = {entry.recording: written.get(id_, entry.path) for id_, entry in same_channels.items()}
        for id_, sound in (usable_audio(files, None, num_channels, out, drops) if files else {}).items():
            recordings[id_] = (sound, num_channels)
    for number, drop in enumerate(drops):
        if path := written.get(drop.id):  # users do not know this file, and it may be removed soon
            detail = drop.detail.replace(str(path), command_line(commands[drop.id]))
            drops[number] = dataclasses.replace(drop, detail=detail)
    return recordings


def _list_partnerless(db: sqlite3.Connection, drops: list[Drop]) -> None:
    """List utterances that lack a text, usable audio, or a segment."""
    with_audio = "recording IN (SELECT name FROM audio)"
    textless = db.execute(f"SELECT id FROM place WHERE {with_audio} AND id NOT IN (SELECT id FROM text) ORDER BY rowid")
    drops += [Drop(id_, "no text", f"{id_} is not in the file text") for (id_,) in textless]
    lost = f"SELECT id, recording FROM place WHERE NOT {with_audio} AND id IN (SELECT id FROM text) ORDER BY rowid"
    drops += lost_with_recording(db.execute(lost))
    unplaced = db.execute("SELECT id FROM text WHERE id NOT IN (SELECT id FROM place) ORDER BY rowid")
    drops += [Drop(id_, "no segment", "in text, but not in segments") for (id_,) in unplaced]


def _by_recording(db: sqlite3.Connection, rate_hz: int) -> Iterator[list[Utterance]]:
    """Yield the utterances of one recording at a time, sorted by recording id."""
    for _, rows in itertools.groupby(db.execute(UTTERANCES), key=lambda row: row[1]):
        yield [
            {
                "id": id_,
                "recording_id": recording,
                "start": start_s,
                "duration": length_s(start_s, duration_s if end_s < 0 else end_s, rate_hz),
                "channel": channel,
                "text": text,
                "speaker": speaker,
            }
            for id_, recording, start_s, end_s, channel, duration_s, text, speaker in rows
        ]


def _kaldi_rule(data: Data) -> Rule:
    """Return the rule for custom text, with the period of a letter before 's kept off."""
    rule = text_rule(data)
    if data.text_rules != "english":
        return rule
    return lambda text: rule(re.sub(r"(?<=[A-Za-z])\.(?='s)", "", text))


def length_s(start_s: float, end_s: float, rate_hz: int) -> float:
    """Return a duration with both times rounded to samples, halves up, as lhotse."""
    start, end = (math.floor(round(time_s * rate_hz, 8) + 0.5) for time_s in (start_s, end_s))
    return (end - start) / rate_hz
