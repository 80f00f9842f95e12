"""Request of a command line to `asrtool run`, and the record of a work folder."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from asrtool.errors import AsrtoolError
from asrtool.recipe.recipe import Recipe, find_recipe, is_named, load_recipe
from asrtool.settings.config import Config
from asrtool.settings.schema import paths_of
from asrtool.settings.values import format_override, parse_override

RECORD = "config/run.json"  # record of a work folder
OPTIONS = ("--recipe", "--config", "--set")


@dataclass(frozen=True)
class Request:
    """A recipe, configurations and settings, as options of `asrtool run` give them."""

    recipe: str | None
    configs: Sequence[str]
    overrides: Sequence[str]

    @classmethod
    def of(cls, argv: Sequence[str]) -> Request:
        """Parse `argv`; options other than OPTIONS are ignored."""
        pairs = list(zip(argv[::2], argv[1::2], strict=False))
        recipe, configs, overrides = ([text for name, text in pairs if name == option] for option in OPTIONS)
        return cls(recipe[-1] if recipe else None, configs, overrides)

    def argv(self) -> list[str]:
        """Return the options and their values."""
        values = ([self.recipe] if self.recipe else [], self.configs, self.overrides)
        return [word for name, texts in zip(OPTIONS, values, strict=True) for text in texts for word in (name, text)]

    def from_anywhere(self, recipe: Recipe, config: Config) -> Request:
        """Return the request with absolute paths, for any current directory."""
        overrides = list(self.overrides)
        for number, (section, *keys) in enumerate(parse_override(text)[0] for text in overrides):
            values = getattr(config, section)
            paths = values if section == "paths" else {key: getattr(values, key) for key in paths_of(values)}
            if keys[0] in paths and len(keys) == 1:
                overrides[number] = format_override(f"{section}.{keys[0]}", paths[keys[0]])
        return Request(str(recipe.folder), _whole_names(self.configs, recipe.folder), overrides)


def continue_work(work: Path, requested: Request, unset: Sequence[str] = ()) -> Request:
    """Return the request that made `work`, with the settings of `requested` on top.

    Settings of the keys `unset` are dropped; other configurations drop all of them. Raises AsrtoolError for another
    recipe, and for a key that was not set.
    """
    before = _read_record(work)
    recorded = {_key(text): text for text in before.overrides} if before else {}
    for key in unset:
        if key not in recorded:
            known = f"those that {work} was made with are {', '.join(recorded)}" if recorded else "leave out --unset"
            raise AsrtoolError(f"--unset {key}: {work} was not made with --set {key}", known)
    if before is None:
        return requested
    folder = find_recipe(requested.recipe or before.recipe)
    if folder.name != (made_by := Path(str(before.recipe)).name):
        hint = f"choose another --work, or leave out --recipe: asrtool run --work {shlex.quote(str(work))}"
        raise AsrtoolError(f"{work}: made by recipe {made_by}, and --recipe is {folder.name}", hint)
    recipe = requested.recipe or (folder.name if is_named(folder) else str(folder))
    if requested.configs and _whole_names(requested.configs, folder) != (
        _whole_names(before.configs, folder) or [load_recipe(folder).default_config]
    ):
        if dropped := [text for text in before.overrides if text not in requested.overrides]:
            logging.info("%s: another --config drops %s", work, shlex.join(Request(None, [], dropped).argv()))
        return replace(requested, recipe=recipe)
    kept = {key: text for key, text in recorded.items() if key not in unset}
    overrides = list((kept | {_key(text): text for text in requested.overrides}).values())
    merged = Request(recipe, requested.configs or before.configs, overrides)
    if sorted(merged.argv()) != sorted(replace(requested, recipe=recipe).argv()):
        logging.info("%s continues with %s (--set adds to it, --unset drops)", work, shlex.join(merged.argv()))
    return merged


def _key(override: str) -> str:
    return override.partition("=")[0].strip()


def _whole_names(configs: Sequence[str], recipe: Path) -> list[str]:
    """Return names of a recipe's configurations, and absolute paths of others."""
    named = {name for name in configs if (recipe / "conf" / f"{name}.toml").is_file()}
    return [name if name in named else str(Path(name).resolve()) for name in configs]


def _read_record(work: Path) -> Request | None:
    """Read the request that made `work`; None if no run has written there."""
    try:
        about = json.loads((work / RECORD).read_text(encoding="utf-8"))
        argv = about["options"] if "options" in about else shlex.split(about["command"])[2:]  # by an older asrtool
        before, name = Request.of(argv), str(about["recipe"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    is_there = before.recipe and (Path(before.recipe) / "recipe.py").is_file()
    return before if is_there else replace(before, recipe=name)
