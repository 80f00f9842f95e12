"""Check our counts against an installed SCTK."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from asrtool.errors import AsrtoolError
from asrtool.score.lines import lower
from asrtool.score.result import Counts, Result, total

DEBIAN_FOLDER = "/usr/lib/sctk/bin"
# SCTK crashes on a file without any rule.
NO_RULES = ";; a rule that changes nothing\n%HESITATION => %HESITATION / [ ] __ [ ]\n"
_SEGMENT = re.compile(r"id: \((.*)\)\n(?:Labels: <(.*)>\n)?(?:.*\n)*?Scores: .*\) (\d+) (\d+) (\d+) (\d+)\n")
_ROW = re.compile(r"^ *\| *(\S+) *\| *(\d+) +\d+ *\| *(\d+) +(\d+) +(\d+) +(\d+) ", re.MULTILINE)


def check_sctk(result: Result, ref: Path, hyp: Path, glm: Path | None) -> None:
    """Raise AsrtoolError at the first difference between `result` and hubscr.pl.

    Compares segments, corr, sub, del and ins of each segment, speaker and label and overall. Raises AsrtoolError too
    if SCTK is not installed or fails.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_hubscr(folder, ref, hyp, glm)
        segments = _SEGMENT.findall((folder / "h.ctm.filt.pra").read_text(encoding="utf-8"))
        rows = _ROW.findall((folder / "h.ctm.filt.raw").read_text(encoding="utf-8"))
    ours = {segment.id: segment.alignment.counts for segment in result.segments}
    theirs = {key: Counts(1, *map(int, counts)) for key, _, *counts in segments}
    _compare("segment", ours, theirs)
    *speakers, (_, *overall) = rows
    ours_by_speaker = {speaker: part.overall for speaker, part in result.speakers.items()}
    _compare("speaker", ours_by_speaker, {key: Counts(*map(int, counts)) for key, *counts in speakers})
    _compare("all", {"segments": result.overall}, {"segments": Counts(*map(int, overall))})
    labels: dict[str, list[Counts]] = {}
    for key, names, *_ in segments:
        for label in filter(None, names.split(",")):
            labels.setdefault(lower(label), []).append(theirs[key])
    found = {lower(label): part.overall for label, part in result.labels.items() if part.segments}
    _compare("label", found, {label: total(counts) for label, counts in labels.items()})


def run_hubscr(folder: Path, ref: Path, hyp: Path, glm: Path | None) -> None:
    """Score with hubscr.pl in `folder`; AsrtoolError if it is missing or fails."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), DEBIAN_FOLDER])
    program = shutil.which("hubscr.pl", path=path)
    if not program:
        raise AsrtoolError(
            f"no hubscr.pl on PATH or in {DEBIAN_FOLDER}",
            "install SCTK (Debian package sctk) or score without --check-sctk",
        )
    for name, source in (("r.stm", ref), ("h.ctm", hyp), ("g.glm", glm)):
        (folder / name).write_bytes(source.read_bytes() if source else NO_RULES.encode())
    command = [program, "-V", "-l", "english", "-h", "hub5", "-g", "g.glm", "-r", "r.stm", "h.ctm"]
    env = {**os.environ, "LC_ALL": "C", "PATH": f"{Path(program).parent}{os.pathsep}{path}"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        lines = [line for line in lines if line.startswith("Error")] or lines
        raise AsrtoolError(
            f"{program} failed on {hyp} with exit code {done.returncode}: {lines[-1] if lines else 'no output'}",
            "score without --check-sctk to see the counts",
        )


def _compare(what: str, ours: Mapping[str, Counts], theirs: Mapping[str, Counts]) -> None:
    for name in [*ours, *theirs]:
        if ours.get(name) != theirs.get(name):
            raise AsrtoolError(
                f"{what} {name}: {_format(ours.get(name))} here, {_format(theirs.get(name))} by SCTK",
                "report this with both files",
            )


def _format(counts: Counts | None) -> str:
    if counts is None:
        return "missing"
    return ", ".join(f"{name} {count}" for name, count in counts.to_dict().items() if name != "words")
