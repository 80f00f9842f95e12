"""State of a stage: done, stale or to do, with the reason.

A finished stage leaves a marker, ``{work}/.stages/NAME.json``: its fingerprint (commands, settings, digests of inputs
and code) and digests of its outputs. The stage is done as long as all of these agree.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asrtool.errors import AsrtoolError
from asrtool.files import STAGES, size_and_time, write_text
from asrtool.recipe.contents import contents_of
from asrtool.recipe.recipe import Recipe
from asrtool.recipe.request import Request
from asrtool.recipe.source import ROOT, chosen_modules, code_digests
from asrtool.recipe.stage import Stage, lies_in
from asrtool.settings.config import SECTIONS, Config, chosen_components, defaults_of, select
from asrtool.settings.schema import changed_setting, paths_of
from asrtool.settings.toml_files import used_paths
from asrtool.settings.values import flatten

Marker = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """One recipe with its settings and its work directory."""

    recipe: Recipe
    config: Config
    work: Path
    find_entry: Callable[[Sequence[str]], str]  # command line -> module:function; AsrtoolError if none
    find_audio: Callable[[Path], Iterable[str]]  # a folder of manifests -> audio files; AsrtoolError for a corrupt one
    request: Request  # recipe, configurations and settings of this run
    again: str = ""  # command that continues; empty: `asrtool run` in `work`

    def is_off(self, stage: Stage) -> bool:
        """Return whether the settings turn `stage` off."""
        if stage.optional:
            chosen = [part.settings for part in chosen_components(self.config, SECTIONS)]
            if not any(stage.name in getattr(settings, "needs", ()) for settings in chosen):
                return True
        section, _, key = stage.when.partition(".")
        return bool(stage.when) and not getattr(getattr(self.config, section), key)

    def needs(self, stage: Stage) -> list[str]:
        """Return the inputs of `stage`, without outputs of stages that are off."""
        off = [path for other in self.recipe.stages if self.is_off(other) for path in other.makes]
        return [need for need in stage.needs if not any(lies_in(need, path) for path in off)]

    def reads(self, stage: Stage) -> list[str]:
        """Return the inputs of `stage`, and files and folders that its settings name."""
        sections = [getattr(self.config, name) for name in stage.settings if name in SECTIONS[1:]]
        named = [(section, key) for section in sections for key in paths_of(section)]
        values = [getattr(section, key) for section, key in named if key not in getattr(section, "no_part", ())]
        files = list(filter(os.path.isabs, _listed(values)))  # not names of corpora
        tars = filter(os.path.isfile, self.releases(stage))  # links of the corpus folder lead to the others
        return [*self.needs(stage), *files, *tars]

    def releases(self, stage: Stage) -> list[str]:
        """Return the places of the releases that `stage` reads."""
        keys = used_paths(self.config.data, self.config.lm.extra_text) if "paths" in stage.settings else []
        return _listed(self.config.paths.get(key, "") for key in keys)

    def config_file(self, stage: Stage) -> Path:
        return self.work / "config" / f"{stage.name}.toml"

    def commands(self, stage: Stage) -> list[list[str]]:
        """Return the argument lists of `stage`."""
        return [line.argv(str(self.work), str(self.config_file(stage))) for line in stage.run]


@dataclass(frozen=True)
class State:
    """`word` is done, stale, to do or off; `why` is the change, in a few words."""

    word: str
    why: str = ""


DONE = State("done")
OFF = State("off")


def stage_state(run: Run, stage: Stage) -> State:
    """Return the state of `stage` from its marker and the current files."""
    if run.is_off(stage):
        return OFF
    marker = read_marker(run.work, stage.name)
    if marker is None:
        return State("to do")
    if not marker["finished"]:
        return State("to do", "failed" if marker.get("failed") else "was interrupted")
    why = _describe_change(run, stage, marker)
    return State("stale", why) if why else DONE


def _describe_change(run: Run, stage: Stage, marker: Marker) -> str:
    for path in stage.makes:
        if not (run.work / path).exists():
            return f"{path} missing"
    if [line.text for line in stage.run] != marker["commands"]:
        return "command changed"
    if why := _changed_setting(run.config, stage, marker["settings"]):
        return why
    needs = input_digests(run, stage)
    for path, digest in needs.items():
        if digest != marker["needs"].get(path):
            return f"{path} changed"
    for path in marker["needs"]:
        if path not in needs:
            return f"{path} is not read any more"
    if changed := changed_code(run, stage, marker["code"]):
        return f"code changed: {changed}"
    for path, digest in output_digests(run, stage).items():
        if digest != marker["makes"].get(path):
            return f"{path} changed since"
    return ""


def _changed_setting(config: Config, stage: Stage, before: Mapping[str, Any]) -> str:
    """Return the first setting that changed, with both values, or ''."""
    now, defaults = _settings(config, stage), defaults_of(config, stage.settings)
    unset = {key: "" for key in (*before, *now) if key.startswith("paths.")}  # a path that nothing gives is empty
    now, defaults = {**unset, **now}, {**defaults, **unset}
    return changed_setting(before, now, defaults)


def changed_code(run: Run, stage: Stage, recorded: Mapping[str, Sequence[Any]]) -> str:
    """Return the first source that differs from the `recorded` ones, or ''."""
    if all(size_and_time(ROOT / name) == tuple(record[:2]) for name, record in recorded.items()):
        return ""  # no need to read any source
    now = _code_digests(run, stage)
    before = {name: record[2] for name, record in recorded.items()}
    return min((name for name in now.keys() | before.keys() if now.get(name) != before.get(name)), default="")


def fingerprint(run: Run, stage: Stage) -> dict[str, Any]:
    """Return all that decides what `stage` makes.

    Keys: `commands` as they are written, `settings` (section.key -> value), `needs` (path or audio -> digest), `code`
    (source file -> size in bytes, modification time in ns, digest of its syntax tree).
    """
    return {
        "commands": [line.text for line in stage.run],
        "settings": _settings(run.config, stage),
        "needs": input_digests(run, stage),
        "code": {name: [*size_and_time(ROOT / name), of] for name, of in _code_digests(run, stage).items()},
    }


def _code_digests(run: Run, stage: Stage) -> dict[str, str]:
    """Return digests of its commands and chosen components."""
    entries = [run.find_entry(argv) for argv in run.commands(stage)]
    return code_digests(entries, chosen_modules(run.config, stage.settings))


def _settings(config: Config, stage: Stage) -> dict[str, Any]:
    """Return its settings without unused releases, executors and places."""
    no_part = {f"{name}.{key}" for name in SECTIONS for key in getattr(getattr(config, name), "no_part", ())}
    names = [name for name in stage.settings if name != "launch"]  # the place of a job has no influence
    settings = {key: value for key, value in flatten(select(config, names)).items() if key not in no_part}
    if "paths" not in stage.settings:
        return settings
    used = {f"paths.{key}" for key in used_paths(config.data, config.lm.extra_text)}
    return {key: value for key, value in settings.items() if not key.startswith("paths.") or key in used}


def input_digests(run: Run, stage: Stage) -> dict[str, str]:
    """Return path -> digest of the inputs of `stage`, audio of manifests included."""
    contents = contents_of(run.work)
    return {path: contents.digest(path) for path in run.reads(stage)} | audio_digests(run, stage)


def output_digests(run: Run, stage: Stage) -> dict[str, str]:
    """Return path -> digest of the outputs of `stage`."""
    return {path: contents_of(run.work).digest(path) for path in stage.makes}


def audio_digests(run: Run, stage: Stage) -> dict[str, str]:
    """Return digests of audio that only manifests name, outside its inputs."""
    contents, found, known = contents_of(run.work), {}, (*stage.needs, *stage.makes)
    for folder in stage.audio_of:
        name = f"audio of {folder}"
        try:
            audio = run.find_audio(run.work / folder)
            paths = sorted(set(contents.outside(audio, _made_in(run, folder), known)))
        except AsrtoolError:  # reported by the command that reads the manifest
            found[name] = "unknown"
            continue
        digest = hashlib.sha256()
        for path, file_digest in zip(paths, contents.of_files(paths, name), strict=True):
            digest.update(f"{path}\0{file_digest}\n".encode(errors="surrogateescape"))
        if paths:
            found[name] = digest.hexdigest()[:16]
    return found


def _made_in(run: Run, folder: str) -> str:
    """Return the work directory that manifests in `folder` were made in, or ''.

    It may have been moved or copied since.
    """
    markers = (read_marker(run.work, stage.name) for stage in run.recipe.stages if folder in stage.makes)
    return next((str(marker.get("work", "")) for marker in markers if marker), "")


def _listed(values: Iterable[str | Sequence[str]]) -> list[str]:
    """Return all texts that are not empty of settings that are a text or several."""
    return [text for value in values for text in ((value,) if isinstance(value, str) else value) if text]


def read_marker(work: Path, stage: str) -> dict[str, Any] | None:
    """Read the marker of a stage; None if there is no readable one."""
    try:
        marker: dict[str, Any] = json.loads(_marker_file(work, stage).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    whole = {"finished", "commands", "settings", "needs", "code", "makes"} <= marker.keys()
    return marker if whole or marker.get("finished") is False else None


def write_marker(work: Path, stage: str, marker: Marker) -> None:
    """Replace the marker of a stage."""
    write_text(_marker_file(work, stage), json.dumps(marker, indent=1))


def _marker_file(work: Path, stage: str) -> Path:
    return work / STAGES / f"{stage}.json"
