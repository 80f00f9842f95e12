"""Run the stages of a recipe that are not done."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import logging
import os
import platform
import shlex
import time
from pathlib import Path
from typing import BinaryIO

from asrtool.errors import AsrtoolError
from asrtool.files import MARK, STAGES, locked, move_aside, times_digest, write_text, writing
from asrtool.recipe.process import run_logged
from asrtool.recipe.request import RECORD
from asrtool.recipe.stage import Stage, lies_in, number_stages
from asrtool.recipe.state import (
    DONE,
    OFF,
    Run,
    audio_digests,
    changed_code,
    fingerprint,
    output_digests,
    read_marker,
    stage_state,
    write_marker,
)
from asrtool.settings.config import format_toml

VERSIONED = ("asrtool", "torch", "lhotse", "numpy", "sentencepiece", "kaldifst", "kaldi-decoder")


def run_stages(run: Run, chosen: range, force: bool = False) -> list[str]:
    """Run the `chosen` stages that are not done (all with `force`); return names.

    Raises AsrtoolError if a stage fails, an input is missing, the directory lies in the data, or another run works in
    it.
    """
    stages = run.recipe.stages[chosen.start : chosen.stop]
    numbers = number_stages(run.recipe.stages)[chosen.start : chosen.stop]
    for stage in stages:
        for argv in run.commands(stage):  # a misspelled command is reported now, not after hours of training
            run.find_entry(argv)
        for place in filter(os.path.isabs, (*run.reads(stage), *run.releases(stage))):
            if run.work.is_relative_to(Path(place).resolve()):
                what = f"{run.work}: lies in the data {place}, expected the two apart"
                raise AsrtoolError(what, "choose another place with --work")
    with locked(run.work, "run", "choose another place with --work"):
        _write_settings(run)
        _warn_about_earlier(run, chosen)
        pairs = zip(numbers, stages, strict=True)
        return [stage.name for number, stage in pairs if _run_stage(run, number, stage, force)]


def _run_stage(run: Run, number: str, stage: Stage, force: bool) -> bool:
    """Check a stage, run its command lines and record it; return whether it was run."""
    state = stage_state(run, stage)
    title = f"stage {number} {stage.name}"
    if state == OFF or (state == DONE and not force):
        logging.info("%s: %s", title, state.word)
        return False
    logging.info("%s: %s%s", title, stage.why, f" ({state.why})" if state.why else "")
    _check_needs(run, stage)
    inputs = fingerprint(run, stage)
    before = read_marker(run.work, stage.name) or {}
    unfinished = {key: value for key, value in before.items() if key != "failed"} | {"finished": False}
    write_marker(run.work, stage.name, unfinished)
    if force and stage.resumes:
        for path in (run.work / made for made in stage.makes):
            if path.exists():
                logging.info("%s is now %s", path, move_aside(path))
    start = time.monotonic()
    try:
        _run_commands(run, number, stage)
        _check_outputs(run, title, stage)
    except AsrtoolError:
        write_marker(run.work, stage.name, {**unfinished, "failed": True})
        raise
    seconds = time.monotonic() - start
    marker = {
        "finished": True,
        "seconds": round(seconds, 1),
        "work": str(run.work),
        **inputs,
        "makes": output_digests(run, stage),
        "times": {path: times_digest(run.work / path) for path in stage.makes},  # to notice writing
    }
    if set(stage.audio_of) & set(stage.makes):  # audio that its own manifests name is known only now
        files = {path: digest for path, digest in inputs["needs"].items() if path in run.reads(stage)}
        marker["needs"] = files | audio_digests(run, stage)
    if before.get("times") == marker["times"]:  # the commands left alone what other code may have made
        if changed := changed_code(run, stage, before["code"]):
            logging.info("%s: left as it is, made by other code (%s changed); --force makes it again", title, changed)
        marker["code"] = before["code"]
    write_marker(run.work, stage.name, marker)
    logging.info("%s: finished in %.1f s", title, seconds)
    return True


def _write_settings(run: Run) -> None:
    """Write the settings of all stages, and the run's command for the report."""
    if not (run.work / STAGES).exists():
        (run.work / MARK).touch()
    options = run.request.from_anywhere(run.recipe, run.config).argv()
    place = os.path.relpath(run.work) if run.work.is_relative_to(Path.cwd()) else str(run.work)
    work = [] if run.work == run.recipe.default_work else ["--work", place]
    command = shlex.join(["asrtool", "run", *run.request.argv(), *work])
    about = {"command": command, "recipe": run.recipe.name, "work": str(run.work), "options": options}
    texts = {run.config_file(stage): format_toml(run.config, stage.settings) for stage in run.recipe.stages}
    texts[run.work / RECORD] = json.dumps(about, indent=1)
    with writing(*texts):
        for path, text in texts.items():
            write_text(path, text)


def _warn_about_earlier(run: Run, chosen: range) -> None:
    """Warn of inputs that are not up to date when a run starts in the middle."""
    stages = run.recipe.stages
    for earlier in stages[: chosen.start]:
        state = stage_state(run, earlier)
        if state.word == "stale" and any(stages[i].reads_from(earlier) for i in chosen):
            logging.info("stage %s is stale (%s); its files are used as they are", earlier.name, state.why)


def _check_needs(run: Run, stage: Stage) -> None:
    """Raise AsrtoolError naming the stage to run if an input is missing or unfinished."""
    for need in run.needs(stage):
        maker = next((maker for maker in run.recipe.stages if any(lies_in(need, made) for made in maker.makes)), None)
        if maker is None:
            raise AsrtoolError(f"stage {stage.name} needs {need}, which no stage makes", "see: asrtool run --check")
        marker = read_marker(run.work, maker.name)
        if marker and not marker["finished"]:
            what = f"stage {stage.name} needs {run.work / need}, but stage {maker.name}, which makes it, did not finish"
        elif not (run.work / need).exists():
            what = f"stage {stage.name} needs {run.work / need}, which stage {maker.name} makes and has not yet"
        else:
            continue
        raise AsrtoolError(what, f"run: {_again(run, maker)}")


def _run_commands(run: Run, number: str, stage: Stage) -> None:
    path = run.work / "logs" / f"{number.zfill(2 + stage.is_lettered)}-{stage.name}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as log:  # appended to: the log of a run that broke off is worth keeping
        _note(log, f"stage {number} {stage.name}: {stage.why}")
        _note(log, f"versions: {_versions()}")
        for argv in run.commands(stage):
            logging.info("%s", shlex.join(argv))
            _note(log, f"command: {shlex.join(argv)}")
            _note(log, f"start: {_now()}")
            exit_code = None
            try:
                exit_code = run_logged(argv[1:], log)
            finally:
                _note(log, f"end: {_now()}, {'stopped' if exit_code is None else f'exit code {exit_code}'}")
            if exit_code != 0:
                raise AsrtoolError(
                    f"stage {number} {stage.name} failed with exit code {exit_code}, see above, or {path}",
                    f"fix the cause, then: {_again(run, stage)} (--set KEY=VALUE changes a setting)",
                )


def _check_outputs(run: Run, title: str, stage: Stage) -> None:
    missing = [path for path in stage.makes if not (run.work / path).exists()]
    if missing:
        raise AsrtoolError(
            f"{title} ended without an error but {run.work / missing[0]} is missing",
            f"correct `makes` or the command in {run.recipe.folder / 'recipe.py'}",
        )


def _again(run: Run, stage: Stage) -> str:
    """Return the command that resumes, at `stage` if it is one of the folder."""
    return run.again or f"asrtool run --work {shlex.quote(str(run.work))} --stage {stage.name}"


def _note(log: BinaryIO, text: str) -> None:
    log.write(f"# {text}\n".encode())
    log.flush()


def _now() -> str:
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def _versions() -> str:
    names = [f"python {platform.python_version()}"]
    for package in VERSIONED:
        try:
            names.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            names.append(f"{package} absent")
    return ", ".join(names)
