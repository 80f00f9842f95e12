"""Commands that write audio to standard output, as wav.scp has them: read, and run once, to FLAC.

A command that is one program with its arguments runs without a shell. What needs a shell, such as a second command
behind ``|``, is run by ``sh -c`` where that is allowed.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import soundfile

from asrtool.corpus.manifest import Drop
from asrtool.corpus.parts import read_parts
from asrtool.errors import AsrtoolError
from asrtool.files import size_and_time, write_beside
from asrtool.local.utterances import locate
from asrtool.log import progress

BY_SHELL = ("sh", "-c")
# Of a command: what is quoted, what a backslash makes plain, and one character.
_PART = re.compile(
    r"""'[^']*'|"(?:[^"\\$`]|\\[^$`\n])*"|\\[^\n]|(?P<sign>["'\\|&;<>()$`*?\[{\n])|(?P<first>(?<!\S)[~#])|.""",
    re.DOTALL,
)


def read_pipe(command: str, directory: Path, allow_shell: bool, where: str) -> tuple[str, ...]:
    """The program and the arguments of `command`, which a wav.scp in `directory` has, without its last ``|``.

    Arguments that are files are found as `locate` does. Raises AsrtoolError, which begins with `where`, for a command
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
    program, *words = shlex.split(command)
    if not shutil.which(program):
        raise AsrtoolError(f"{where} runs {program}, which is not installed", "install it, or name the audio files")
    return (program, *(_found(word, directory) for word in words))


def run_pipes(commands: Mapping[str, Sequence[str]], folder: Path, drops: list[Drop]) -> dict[str, Path]:
    """Recording -> FLAC in `folder` of what its command writes; those that fail are added to `drops`.

    A file is named for its command and what that reads, so that a second run finds it, and nothing else takes its name.
    """
    targets = {words: folder / f"{_digest(words)}.flac" for words in map(tuple, commands.values())}
    todo = [words for words, target in targets.items() if not target.is_file()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # the programs do the work
        faults = pool.map(_run, todo, [targets[words] for words in todo])
        found = dict(zip(todo, progress(faults, "run pipes", len(todo), "file"), strict=True))
    failed = {id_: fault for id_, words in commands.items() if (fault := found.get(tuple(words), ""))}
    drops += [Drop(id_, "unusable audio", fault) for id_, fault in failed.items()]
    return {id_: targets[tuple(words)] for id_, words in commands.items() if id_ not in failed}


def command_line(words: Sequence[str]) -> str:
    """A command as a shell has it."""
    return words[-1] if tuple(words[:2]) == BY_SHELL else shlex.join(words)


def _needs_shell(command: str) -> str:
    """The first sign of `command` that means something to a shell alone; empty where there is none."""
    signs = (match["sign"] or match["first"] for match in _PART.finditer(command))
    assigned = re.match(r"\s*\w+=", command)
    return assigned[0].strip() if assigned else next(filter(None, signs), "")


def _found(word: str, directory: Path) -> str:
    path = locate(directory, word)
    return str(path) if not word.startswith("-") and path.is_file() else word


def _digest(words: Sequence[str]) -> str:
    """Of `words`, and of sizes and times of those that are files."""
    parts = [f"{word}\0{size_and_time(Path(word)) if os.path.isfile(word) else ''}" for word in words]
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:24]


def _run(words: Sequence[str], target: Path) -> str:
    """Write what the command writes; what is wrong with it, or an empty text."""
    command = command_line(words)
    with tempfile.TemporaryFile() as output:
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, check=False)
        except OSError as error:
            return f"{command}: {error.strerror}"
        lines = done.stderr.decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it says nothing")
        if done.returncode:
            return f"{command}: exit code {done.returncode}: {last}"
        output.seek(0)
        fault = _keep(output, target)
        return fault and f"{command}: {fault} {last}"  # of several in a shell, one may have failed


def _keep(output: IO[bytes], target: Path) -> str:
    try:
        samples, rate_hz = read_parts(output.read())
    except AsrtoolError as error:
        return error.what
    except soundfile.LibsndfileError as error:
        return f"no readable audio: {error.error_string}"
    flac = io.BytesIO()  # through memory, because libsndfile reports a full disk as success
    soundfile.write(flac, samples, rate_hz, format="FLAC", subtype="PCM_16")
    with write_beside(target) as temporary:
        temporary.write_bytes(flac.getvalue())
    return ""
