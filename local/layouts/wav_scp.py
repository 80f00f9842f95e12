"""wav.scp of a Kaldi data directory: files, sph2pipe pipes, other commands.

sph2pipe need not be run.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePath

from asrtool.data.audio.joined import find_lossless, read_parts, write_lossless
from asrtool.data.manifests.manifest import Drop
from asrtool.errors import AsrtoolError
from asrtool.files import size_and_time
from asrtool.local.layouts.finish import copies_among
from asrtool.local.utterances import locate
from asrtool.log import progress

BY_SHELL = ("sh", "-c")
KEEPS_FLOAT = "2"  # earlier files had float audio in 16 bits, and are not used
# Parts of a command: a quoted text, an escaped character, and any other character.
_PART = re.compile(
    r"""'[^']*'|"(?:[^"\\$`]|\\[^$`\n])*"|\\[^\n]|(?P<sign>["'\\|&;<>()$`*?\[{\n])|(?P<first>(?<!\S)[~#])|.""",
    re.DOTALL,
)


def read_pipe(command: str, directory: Path, allow_shell: bool, where: str) -> tuple[str, ...]:
    """Split `command` in a wav.scp of `directory`, without ``|``.

    Arguments that are files are found as `locate` does. Raises AsrtoolError, beginning with `where`, for a command
    that needs a shell unless `allow_shell`, and for a program that is not installed.
    """
    sign = _needs_shell(command)
    if sign and allow_shell:
        return (*BY_SHELL, command)
    if sign or not command.strip():
        what = f"whose {sign} needs a shell" if sign else "expected a program that writes audio"
        raise AsrtoolError(
            f"{where} is the command {command[:60]!r}, {what}",
            "add --allow-pipes (data.allow_pipes = true) to have sh run it, or run it once and name the file",
        )
    program, *arguments = shlex.split(command)
    if not shutil.which(program):
        raise AsrtoolError(f"{where} runs {program}, which is not installed", "install it, or name the audio files")
    return (program, *(_found(word, directory) for word in arguments))


def run_pipes(commands: Mapping[str, Sequence[str]], folder: Path, drops: list[Drop]) -> dict[str, Path]:
    """Run commands; return recording -> file in `folder`; failures go to `drops`.

    A file is named after its command and inputs, so a second run finds it.
    """
    stems = {argv: folder / _digest(argv) for argv in map(tuple, commands.values())}
    todo = [argv for argv, stem in stems.items() if not find_lossless(stem)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # the programs do the work
        faults = pool.map(_run, todo, [stems[argv] for argv in todo])
        found = dict(zip(todo, progress(faults, "run pipes", len(todo), "file"), strict=True))
    failed = {id_: fault for id_, argv in commands.items() if (fault := found.get(tuple(argv), ""))}
    drops += [Drop(id_, "unusable audio", fault) for id_, fault in failed.items()]
    files = {argv: find_lossless(stem) for argv, stem in stems.items()}
    return {id_: path for id_, argv in commands.items() if (path := files[tuple(argv)])}


def command_line(argv: Sequence[str]) -> str:
    """Return a command as it would be typed in a shell."""
    return argv[-1] if tuple(argv[:2]) == BY_SHELL else shlex.join(argv)


def _needs_shell(command: str) -> str:
    """Return the first character of `command` that needs a shell, or ''."""
    signs = (match["sign"] or match["first"] for match in _PART.finditer(command))
    assigned = re.match(r"\s*\w+=", command)
    return assigned[0].strip() if assigned else next(filter(None, signs), "")


def _found(word: str, directory: Path) -> str:
    path = locate(directory, word)
    return str(path) if not word.startswith("-") and path.is_file() else word


def _digest(argv: Sequence[str]) -> str:
    """Return a hash of `argv`, and of sizes and times of files in it."""
    parts = [f"{word}\0{size_and_time(Path(word)) if os.path.isfile(word) else ''}" for word in argv]
    return hashlib.sha256("\0".join([KEEPS_FLOAT, *parts]).encode(errors="surrogateescape")).hexdigest()[:24]


def _run(argv: Sequence[str], stem: Path) -> str:
    """Store the output of the command; return its fault, or an empty text."""
    command = command_line(argv)
    with tempfile.TemporaryFile() as output:
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, check=False)
        except OSError as error:
            return f"{command}: {error.strerror}"
        lines = done.stderr.decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "no output")
        if done.returncode:
            return f"{command}: exit code {done.returncode}: {last}"
        output.seek(0)
        try:
            write_lossless(*read_parts(output.read()), stem)
        except AsrtoolError as error:
            return f"{command}: {error.what} {last}"  # one of several commands in a shell may have failed
        return ""


SIDES = {"A": 0, "B": 1, "1": 0, "2": 1}
WITH_VALUE, ALONE = ("-f", "-c"), "-p"  # options of sph2pipe that change no sample but by choosing a channel


@dataclass(frozen=True, slots=True)
class Entry:
    """Entry of wav.scp: a file, one channel of a file, or a command."""

    path: Path  # for a command: folder of wav.scp
    recording: str  # id of the whole file
    channel: int = 0
    num_channels: int = 1
    command: tuple[str, ...] = ()  # program and arguments


def parse_pipe(command: str) -> tuple[str, int | None] | None:
    """Return file and channel of ``sph2pipe -f wav -p -c 1 FILE |``, else None.

    Channels count from 1, None is all.
    """
    try:
        program, *arguments = shlex.split(command.rstrip().removesuffix("|"))
    except ValueError:  # an open quote, or nothing
        return None
    if PurePath(program).name != "sph2pipe" or set("".join(arguments)) & set("|&;<>()$`*?"):
        return None
    channel, files = None, []
    rest = iter(arguments)
    for word in rest:
        if word in WITH_VALUE:
            value = next(rest, "")
            channel = value if word == "-c" or not value else channel
        elif word != ALONE:
            files.append(word)
    if len(files) != 1 or files[0].startswith("-") or channel not in (None, "1", "2"):
        return None
    return files[0], int(channel) if channel else None


def read_wav_scp(
    directory: Path, places: Mapping[str, str], sides: Mapping[str, str], allow_shell: bool = False
) -> dict[str, Entry]:
    """Return id -> entry of wav.scp and reco2file_and_channel, without speed copies.

    Relative paths are found as `locate` does. Raises AsrtoolError, naming the line, as read_pipe, and if the two
    files contradict each other.
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
