"""wav.scp of a Kaldi data directory: audio files, pipes of sph2pipe, which need not be run, and other commands."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

from asrtool.errors import AsrtoolError
from asrtool.local.layouts.copies import copies_among
from asrtool.local.layouts.pipe import read_pipe
from asrtool.local.utterances import locate

SIDES = {"A": 0, "B": 1, "1": 0, "2": 1}
WITH_VALUE, ALONE = ("-f", "-c"), ("-p",)  # options of sph2pipe that change no sample but by choosing a channel


@dataclass(frozen=True, slots=True)
class Entry:
    """What an id of wav.scp stands for: a file of one channel, one of the two of a file, or what a command writes."""

    path: Path  # of a command: where wav.scp is
    recording: str  # id of the whole file
    channel: int = 0
    num_channels: int = 1
    command: tuple[str, ...] = ()  # program and arguments


def parse_pipe(command: str) -> tuple[str, int | None] | None:
    """File and channel (from 1, None for all) of ``sph2pipe -f wav -p -c 1 FILE |``; None for any other command."""
    reader = shlex.shlex(command.rstrip().removesuffix("|"), posix=True, punctuation_chars=True)
    reader.whitespace_split, reader.commenters = True, ""
    try:
        program, *words = list(reader)
    except ValueError:  # an open quote, or nothing
        return None
    if PurePath(program).name != "sph2pipe":
        return None
    files, options, words = [], {}, words[::-1]
    while words:
        word = words.pop()
        if word in WITH_VALUE and words:
            options[word] = words.pop()
        elif word not in ALONE:
            files.append(word)
    channel = options.get("-c")
    if (
        len(files) != 1
        or files[0].startswith("-")
        or set(files[0]) & set("|&;<>()$`*?")
        or channel not in (None, "1", "2")
    ):
        return None
    return files[0], int(channel) if channel else None


def read_wav_scp(
    directory: Path, places: Mapping[str, str], sides: Mapping[str, str], allow_shell: bool = False
) -> dict[str, Entry]:
    """Id -> entry, of the lines `places` of wav.scp and `sides` of reco2file_and_channel, without copies_among them.

    Relative paths are taken as `locate` does. Raises AsrtoolError, naming the line, for a command that read_pipe
    refuses, and where the two files contradict each other.
    """
    entries: dict[str, Entry] = {}
    paths: dict[str, Path] = {}
    copies = copies_among(places)
    for number, (id_, place) in enumerate(places.items(), start=1):
        if id_ in copies:
            continue
        where = f"{directory / 'wav.scp'}, line {number}: {id_}"
        entry = _entry(directory, id_, place, sides.get(id_), allow_shell, where)
        entries[id_] = entry
        if paths.setdefault(entry.recording, entry.path) != entry.path:
            raise AsrtoolError(
                f"{where} is of the recording {entry.recording}, which is {paths[entry.recording]} in another line",
                "correct reco2file_and_channel, which names the recording",
            )
    return entries


def _entry(directory: Path, id_: str, place: str, side: str | None, allow_shell: bool, where: str) -> Entry:
    if not place.endswith("|"):
        return Entry(locate(directory, place), id_)
    piped = parse_pipe(place)
    if piped is None:
        return Entry(directory, id_, command=read_pipe(place.removesuffix("|"), directory, allow_shell, where))
    name, channel = piped
    path = locate(directory, name)
    if channel is None:
        return Entry(path, id_)
    recording, _, letter = (side or path.stem.lower()).partition(" ")
    if letter and SIDES.get(letter.strip()) != channel - 1:
        raise AsrtoolError(
            f"{where} is channel {channel} of {name}, in reco2file_and_channel it is {letter.strip()}",
            "correct one of the two files",
        )
    return Entry(path, recording, channel - 1, 2)
