"""State of a stage: done, stale or to do, and why.

A finished stage leaves a marker, ``{work}/.stages/NAME.json``: its commands, its settings, and digests of its inputs,
its code and its outputs. The stage is done as long as all of these agree.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from asrtool.errors import AsrtoolError
from asrtool.files import STAGES, size_and_time, times_digest, write_text
from asrtool.recipe.contents import contents_of
from asrtool.recipe.recipe import Recipe
from asrtool.recipe.request import Request
from asrtool.recipe.source import ROOT, Entry, chosen_modules, code_digests
from asrtool.recipe.stage import Stage, lies_in
from asrtool.settings import registry
from asrtool.settings.config import SECTIONS, Config, chosen_components, defaults_of, select
from asrtool.settings.schema import changed_key
from asrtool.settings.toml_files import used_paths
from asrtool.settings.values import flatten

MARKERS = STAGES
STARTED = {"finished": False}


@dataclass(frozen=True)
class Run:
    """One recipe with its settings and its work directory."""

    recipe: Recipe
    config: Config
    work: Path
    find_entry: Callable[[Sequence[str]], Entry]  # words of a command line -> its code; AsrtoolError if it is none
    find_audio: Callable[[Path], Iterable[str]]  # a folder of manifests -> audio files; AsrtoolError for a corrupt one
    request: Request  # what this run is about

    def lines(self, stage: Stage) -> list[str]:
        """The command lines of `stage`, placeholders as they are."""
        return [line.text for line in stage.run]

    def is_off(self, stage: Stage) -> bool:
        """Return whether the settings turn `stage` off."""
        if stage.optional and stage.name not in self._needed_stages():
            return True
        section, _, key = stage.when.partition(".")
        return bool(stage.when) and not getattr(getattr(self.config, section), key)

    def _needed_stages(self) -> set[str]:
        """The optional stages that the components chosen by the settings need."""
        return {
            name for part in chosen_components(self.config, SECTIONS) for name in getattr(part.settings, "needs", ())
        }

    def needs(self, stage: Stage) -> list[str]:
        """Return the inputs of `stage`, without outputs of stages that are off."""
        off = [path for other in self.recipe.stages if self.is_off(other) for path in other.makes]
        return [need for need in stage.needs if not any(lies_in(need, path) for path in off)]

    def reads(self, stage: Stage) -> list[str]:
        """Return the inputs of `stage`, and files and folders that its settings name."""
        sections = [getattr(self.config, name) for name in stage.settings if name in SECTIONS]
        values = [getattr(section, key) for section in sections for key in getattr(section, "reads", ())]
        named = [path for value in values for path in ((value,) if isinstance(value, str) else value)]
        corpora = registry.names("corpus")  # of which the settings give a name, not a place
        files = [str(Path(path).absolute()) for path in named if path and path not in corpora]
        return [*self.needs(stage), *files, *(self._tar_files() if "paths" in stage.settings else ())]

    def _tar_files(self) -> list[str]:
        """Return the tar files among the releases; links lead to unpacked folders."""
        places = [self.config.paths.get(key, "") for key in used_paths(self.config.data, self.config.lm.extra_text)]
        listed = itertools.chain.from_iterable((place,) if isinstance(place, str) else place for place in places)
        paths = [Path(place).expanduser().absolute() for place in listed if place]
        return [str(path) for path in paths if path.is_file()]

    def config_file(self, stage: Stage) -> Path:
        return self.work / "config" / f"{stage.name}.toml"

    def words(self, stage: Stage, line: str) -> list[str]:
        """`line` of `stage` as an argument list, placeholders filled in."""
        values = {"{work}": str(self.work), "{config}": str(self.config_file(stage))}
        return [fill(word, values) for word in shlex.split(line)]


@dataclass(frozen=True)
class State:
    """`word` is done, stale, to do or off; `why` says what changed, in a few words."""

    word: str
    why: str = ""


DONE = State("done")
OFF = State("off")


@dataclass(frozen=True)
class Fingerprint:
    """All that decides what a stage makes. Digests are of names and contents of files."""

    commands: list[str]
    settings: dict[str, Any]  # section.key -> value
    needs: dict[str, str]  # path, or audio of a folder of manifests -> digest
    code: dict[str, list[Any]]  # source file -> size in bytes, modification time in ns, digest of its syntax tree


def fill(word: str, values: Mapping[str, str]) -> str:
    """Replace placeholders in `word`; other braces stay."""
    for placeholder, value in values.items():
        word = word.replace(placeholder, value)
    return word


def stage_state(run: Run, stage: Stage) -> State:
    """The state of `stage` by its marker and the files as they are now."""
    if run.is_off(stage):
        return OFF
    marker = read_marker(run.work, stage.name)
    if marker is None:
        return State("to do")
    if not marker["finished"]:
        return State("to do", "failed" if marker.get("failed") else "was interrupted")
    if "times" not in marker:
        return State("stale", "finished by an older asrtool, which kept no digests of contents")
    why = _what_changed(run, stage, marker)
    return State("stale", why) if why else DONE


def _what_changed(run: Run, stage: Stage, marker: Mapping[str, Any]) -> str:
    for path in stage.makes:
        if not (run.work / path).exists():
            return f"{path} missing"
    if run.lines(stage) != marker["commands"]:
        return "command changed"
    if why := _changed_setting(run.config, stage, marker["settings"]):
        return why
    needs = _needs(run, stage)
    for path, digest in needs.items():
        if digest != marker["needs"].get(path):
            return f"{path} changed"
    for path in marker["needs"]:
        if path not in needs:
            return f"{path} is not read any more"
    if changed := changed_code(run, stage, marker["code"]):
        return f"code changed: {changed}"
    for path in stage.makes:
        if contents_of(run.work).digest(path) != marker["makes"].get(path):
            return f"{path} changed since"
    return ""


def _changed_setting(config: Config, stage: Stage, before: Mapping[str, Any]) -> str:
    """The first setting that is another than `before`, with both values; '' for none."""
    now, defaults = _settings(config, stage), defaults_of(config, stage.settings)
    unset = {key: "" for key in (*before, *now) if key.startswith("paths.")}  # a path that nothing gives is empty
    now, defaults = {**unset, **now}, {**defaults, **unset}
    key = changed_key(before, now, defaults)
    return f"{key} {json.dumps(before.get(key, defaults.get(key)))} -> {json.dumps(now[key])}" if key else ""


def changed_code(run: Run, stage: Stage, recorded: Mapping[str, Sequence[Any]]) -> str:
    """The first source that differs from the `recorded` ones, '' for none."""
    if all(size_and_time(ROOT / name) == tuple(record[:2]) for name, record in recorded.items()):
        return ""  # no need to read any source
    now = _code_digests(run, stage)
    before = {name: record[2] for name, record in recorded.items()}
    return min((name for name in now.keys() | before.keys() if now.get(name) != before.get(name)), default="")


def fingerprint(run: Run, stage: Stage) -> Fingerprint:
    """Return the fingerprint of `stage` if it ran now."""
    code = _code_digests(run, stage)
    return Fingerprint(
        commands=run.lines(stage),
        settings=_settings(run.config, stage),
        needs=_needs(run, stage),
        code={name: [*size_and_time(ROOT / name), digest] for name, digest in code.items()},
    )


def _code_digests(run: Run, stage: Stage) -> dict[str, str]:
    """Return digests of its commands and chosen components."""
    entries = [run.find_entry(run.words(stage, line)) for line in run.lines(stage)]
    return code_digests(entries, chosen_modules(run.config, stage.settings))


def _settings(config: Config, stage: Stage) -> dict[str, Any]:
    """Return its settings without unused releases and without executors."""
    no_part = {f"{name}.{key}" for name in SECTIONS for key in getattr(getattr(config, name), "no_part", ())}
    settings = {key: value for key, value in flatten(select(config, stage.settings)).items() if key not in no_part}
    if "paths" not in stage.settings:
        return settings
    used = {f"paths.{key}" for key in used_paths(config.data, config.lm.extra_text)}
    return {key: value for key, value in settings.items() if not key.startswith("paths.") or key in used}


def _needs(run: Run, stage: Stage) -> dict[str, str]:
    """Digests of what `stage` reads."""
    found = {path: contents_of(run.work).digest(path, stage.reads_only) for path in run.reads(stage)}
    return found | _audio_digests(run, stage)


def _audio_digests(run: Run, stage: Stage) -> dict[str, str]:
    """Return digests of audio that only manifests name, outside its inputs."""
    contents, found, known = contents_of(run.work), {}, (*stage.needs, *stage.makes)
    for folder in stage.audio_of:
        name = f"audio of {folder}"
        try:
            audio = run.find_audio(run.work / folder)
            paths = sorted(set(contents.outside(audio, _made_in(run, folder), known)))
        except AsrtoolError:  # who reads the manifest says what it is
            found[name] = "unknown"
            continue
        digest = hashlib.sha256()
        for path, of_file in zip(paths, contents.of_files(paths, name), strict=True):
            digest.update(f"{path}\0{of_file}\n".encode(errors="surrogateescape"))
        if paths:
            found[name] = digest.hexdigest()[:16]
    return found


def _made_in(run: Run, folder: str) -> str:
    """Return the work directory that manifests in `folder` were made in, or ''.

    It may have been moved or copied since.
    """
    markers = (read_marker(run.work, stage.name) for stage in run.recipe.stages if folder in stage.makes)
    return next((str(marker.get("work", "")) for marker in markers if marker), "")


def read_marker(work: Path, stage: str) -> dict[str, Any] | None:
    """Read the marker of a stage; None if there is no readable one."""
    try:
        marker = json.loads(_marker_file(work, stage).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    expected = {"finished", *(field.name for field in fields(Fingerprint)), "makes"}
    return marker if expected <= marker.keys() or marker.get("finished") is False else None


def mark_started(work: Path, stage: Stage, before: Mapping[str, Any] | None) -> None:
    """Mark the outputs of `stage` as unfinished; `before` is its marker."""
    write_text(
        _marker_file(work, stage.name),
        json.dumps({key: value for key, value in {**(before or {}), **STARTED}.items() if key != "failed"}),
    )


def mark_failed(work: Path, stage: Stage) -> None:
    """Record that `stage`, marked as started, ended with an error."""
    write_text(
        _marker_file(work, stage.name), json.dumps({**(read_marker(work, stage.name) or STARTED), "failed": True})
    )


def times_of_outputs(work: Path, stage: Stage) -> dict[str, str]:
    """Return output -> digest of names, sizes and times, to detect writing."""
    return {path: times_digest(work / path) for path in stage.makes}


def mark_finished(run: Run, stage: Stage, made_of: Fingerprint, seconds: float) -> None:
    """Record that `stage`, `made_of` this, is complete and took `seconds`."""
    marker = {
        "finished": True,
        "seconds": round(seconds, 1),
        "work": str(run.work),
        **asdict(made_of),
        "needs": _needs_when_finished(run, stage, made_of.needs),
        "makes": {path: contents_of(run.work).digest(path) for path in stage.makes},
        "times": times_of_outputs(run.work, stage),
    }
    write_text(_marker_file(run.work, stage.name), json.dumps(marker, indent=1))


def _needs_when_finished(run: Run, stage: Stage, before: dict[str, str]) -> dict[str, str]:
    """Return the digests of inputs from `before` it ran, with audio it listed itself."""
    if not set(stage.audio_of) & set(stage.makes):
        return before
    reads = run.reads(stage)
    return {path: digest for path, digest in before.items() if path in reads} | _audio_digests(run, stage)


def _marker_file(work: Path, stage: str) -> Path:
    return work / MARKERS / f"{stage}.json"
