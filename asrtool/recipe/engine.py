"""Running the stages of a recipe that are not done."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import json
import logging
import os
import platform
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from asrtool.errors import AsrtoolError
from asrtool.files import MARK, STAGES, locked, move_aside, write_text, writing
from asrtool.recipe.plan import maker_of, reads_from
from asrtool.recipe.process import run_logged
from asrtool.recipe.request import RECORD
from asrtool.recipe.stage import Stage, is_lettered, number_stages
from asrtool.recipe.state import (
    DONE,
    OFF,
    Fingerprint,
    Run,
    changed_code,
    fingerprint,
    mark_failed,
    mark_finished,
    mark_started,
    read_marker,
    stage_state,
    times_of_outputs,
)
from asrtool.settings.config import format_toml

VERSIONED = ("asrtool", "torch", "lhotse", "numpy", "sentencepiece", "kaldifst", "kaldi-decoder")


def run_stages(run: Run, chosen: range, force: bool = False) -> list[str]:
    """Run the `chosen` stages that are not done (all with `force`); return names.

    Raises AsrtoolError if a stage fails, an input is missing, or another run works in the same directory.
    """
    stages = [run.recipe.stages[i] for i in chosen]
    for stage in stages:  # a misspelled command is reported now, not after hours of training
        for line in run.lines(stage):
            run.find_entry(run.words(stage, line))
    with locked(run.work, "run", "choose another place with --work"):
        _write_settings(run)
        _warn_about_earlier(run, chosen)
        numbers = number_stages(run.recipe.stages)
        return [
            run.recipe.stages[i].name for i in chosen if _run_if_needed(run, numbers[i], run.recipe.stages[i], force)
        ]


def _write_settings(run: Run) -> None:
    """The settings of every stage, and what the report says about the run."""
    if not (run.work / STAGES).exists():
        (run.work / MARK).touch()
    options = run.request.from_anywhere(run.recipe, run.config).words()
    place = os.path.relpath(run.work) if run.work.is_relative_to(Path.cwd()) else str(run.work)
    work = [] if run.work == run.recipe.default_work else ["--work", place]
    command = shlex.join(["asrtool", "run", *run.request.words(), *work])
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
        if state.word == "stale" and any(reads_from(stages[i], earlier) for i in chosen):
            logging.info("stage %s is stale (%s); its files are used as they are", earlier.name, state.why)


def _run_if_needed(run: Run, number: str, stage: Stage, force: bool) -> bool:
    state = stage_state(run, stage)
    title = f"stage {number} {stage.name}"
    if state == OFF or (state == DONE and not force):
        logging.info("%s: %s", title, state.word)
        return False
    logging.info("%s: %s%s", title, stage.why, f" ({state.why})" if state.why else "")
    _check_needs(run, stage)
    made_of = fingerprint(run, stage)
    before = read_marker(run.work, stage.name)
    mark_started(run.work, stage, before)
    if force and stage.resumes:
        _start_afresh(run, stage)
    start = time.monotonic()
    try:
        _run_lines(run, number, stage)
        _check_outputs(run, title, stage)
    except AsrtoolError:
        mark_failed(run.work, stage)
        raise
    seconds = time.monotonic() - start
    mark_finished(run, stage, _with_code_of(run, title, stage, before, made_of), seconds)
    logging.info("%s: finished in %.1f s", title, seconds)
    return True


def _check_outputs(run: Run, title: str, stage: Stage) -> None:
    missing = [path for path in stage.makes if not (run.work / path).exists()]
    if missing:
        raise AsrtoolError(
            f"{title} ended without an error but {run.work / missing[0]} is missing",
            f"correct `makes` or the command in {run.recipe.folder / 'recipe.py'}",
        )


def _with_code_of(
    run: Run, title: str, stage: Stage, before: Mapping[str, Any] | None, made_of: Fingerprint
) -> Fingerprint:
    """Keep the code of the marker `before` if the command left its outputs alone."""
    if not before or before.get("times") != times_of_outputs(run.work, stage):
        return made_of
    if changed := changed_code(run, stage, before["code"]):
        logging.info("%s: left as it is, made by other code (%s changed); --force makes it again", title, changed)
    return dataclasses.replace(made_of, code=before["code"])


def _start_afresh(run: Run, stage: Stage) -> None:
    for path in stage.makes:
        if (run.work / path).exists():
            logging.info("%s is now %s", run.work / path, move_aside(run.work / path))


def _check_needs(run: Run, stage: Stage) -> None:
    for need in run.needs(stage):
        maker = maker_of(run.recipe.stages, need)
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


def _run_lines(run: Run, number: str, stage: Stage) -> None:
    path = run.work / "logs" / f"{number.zfill(2 + is_lettered(stage))}-{stage.name}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as log:  # appended to: the log of a run that broke off is worth keeping
        _note(log, f"stage {number} {stage.name}: {stage.why}")
        _note(log, f"versions: {_versions()}")
        for line in run.lines(stage):
            words = run.words(stage, line)
            logging.info("%s", shlex.join(words))
            _note(log, f"command: {shlex.join(words)}")
            _note(log, f"start: {_now()}")
            exit_code = None
            try:
                exit_code = run_logged(words[1:], log)
            finally:
                _note(log, f"end: {_now()}, {'stopped' if exit_code is None else f'exit code {exit_code}'}")
            if exit_code != 0:
                raise AsrtoolError(
                    f"stage {number} {stage.name} failed with exit code {exit_code}, see above, or {path}",
                    f"fix the cause, then: {_again(run, stage)} (--set KEY=VALUE changes a setting)",
                )


def _again(run: Run, stage: Stage) -> str:
    """The command line that goes on from `stage`: the work folder knows the rest."""
    return f"asrtool run --work {shlex.quote(str(run.work))} --stage {stage.name}"


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
