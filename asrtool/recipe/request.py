"""What a command line asks `asrtool run` for, and what the work folder was made by."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from asrtool.config import Config
from asrtool.config_value import format_override, parse_override
from asrtool.errors import AsrtoolError
from asrtool.recipe.recipe import Recipe, find_recipe, is_named

RECORD = "config/run.json"  # of a work folder


@dataclass(frozen=True)
class Request:
    """A recipe, configurations and settings, as options of `asrtool run` give them."""

    recipe: str | None
    configs: Sequence[str]
    overrides: Sequence[str]

    @classmethod
    def of(cls, words: Sequence[str]) -> Request:
        """Read what `words` makes; other options are left out."""
        pairs = list(zip(words[::2], words[1::2], strict=False))
        recipe, configs, overrides = ([text for name, text in pairs if name == option] for option in OPTIONS)
        return cls(recipe[-1] if recipe else None, configs, overrides)

    def words(self) -> list[str]:
        """The options and their values."""
        values = ([self.recipe] if self.recipe else [], self.configs, self.overrides)
        return [word for name, texts in zip(OPTIONS, values, strict=True) for text in texts for word in (name, text)]

    def from_anywhere(self, recipe: Recipe, config: Config) -> Request:
        """The same in any current directory: `recipe` and `config` are what it stands for here."""
        named = [recipe.folder / "conf" / f"{name}.toml" for name in self.configs]
        configs = [
            name if file.is_file() else str(Path(name).resolve())
            for name, file in zip(self.configs, named, strict=True)
        ]
        overrides = list(self.overrides)
        for number, (section, *key) in enumerate(parse_override(text)[0] for text in overrides):
            if section == "paths":
                overrides[number] = format_override(f"paths.{key[0]}", config.paths[key[0]])
        return Request(str(recipe.folder), configs, overrides)


OPTIONS = ("--recipe", "--config", "--set")


def continue_work(work: Path, asked: Request) -> Request:
    """Return what a run in `work` is about: what it was made by, with the settings that are `asked` for on top.

    Configurations that are asked for take the place of all that was set before. Raises AsrtoolError for another recipe.
    """
    before = _read_record(work)
    if before is None:
        return asked
    folder = Path(str(before.recipe))
    if asked.recipe and (wanted := find_recipe(asked.recipe).name) != folder.name:
        here = shlex.quote(str(work))
        hint = f"choose another --work, or leave out --recipe: asrtool run --work {here}"
        raise AsrtoolError(f"{work}: made by recipe {folder.name}, and --recipe is {wanted}", hint)
    recipe = asked.recipe or (folder.name if is_named(folder) else str(folder))
    if asked.configs:
        if dropped := [text for text in before.overrides if text not in asked.overrides]:
            logging.info("%s begins anew by --config, without %s", work, shlex.join(Request(None, [], dropped).words()))
        return replace(asked, recipe=recipe)
    by_key = {text.partition("=")[0].strip(): text for text in (*before.overrides, *asked.overrides)}
    merged = Request(recipe, before.configs, list(by_key.values()))
    if merged.words() != replace(asked, recipe=recipe).words():
        logging.info("%s continues with %s (--set adds to it, --config begins anew)", work, shlex.join(merged.words()))
    return merged


def _read_record(work: Path) -> Request | None:
    """What `work` was made by, None if no run has written there. Raises AsrtoolError where its recipe is gone."""
    try:
        about = json.loads((work / RECORD).read_text(encoding="utf-8"))
        words = about["options"] if "options" in about else shlex.split(about["command"])[2:]  # of an older asrtool
        before, name = Request.of(words), str(about["recipe"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if before.recipe and (Path(before.recipe) / "recipe.py").is_file():
        return before
    return replace(before, recipe=str(find_recipe(name)))
