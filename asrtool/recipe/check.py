"""Check all links of a recipe without data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from asrtool.errors import AsrtoolError
from asrtool.recipe.recipe import Recipe
from asrtool.recipe.source import code_digests
from asrtool.recipe.stage import Line, Stage, lies_in
from asrtool.settings.config import Config, check_conflicts, select
from asrtool.settings.toml_files import load_config

PLACEHOLDER = re.compile(r"\{[^{}]*\}")

FindEntry = Callable[[Sequence[str]], str]


def check_recipe(recipe: Recipe, find_entry: FindEntry) -> str:
    """Check all links of a recipe; return a summary in one line.

    Raises AsrtoolError listing every broken link, one a line.
    """
    broken = [*_broken_configs(recipe), *_broken_names(recipe.stages)]
    made: list[str] = []
    for stage in recipe.stages:
        broken += [f"stage {stage.name}: {text}" for text in _broken_links(stage, made, find_entry)]
        made += stage.makes
    if broken:
        broken.insert(0, f"{recipe.folder}: {len(broken)} broken link{'s' if len(broken) > 1 else ''}")
        raise AsrtoolError("\n  ".join(broken), "correct recipe.py or conf")
    counts = ((len(recipe.stages), "stage"), (len(recipe.configs()), "configuration"))
    counted = ", ".join(f"{number} {what}{'s' if number > 1 else ''}" for number, what in counts)
    return f"{recipe.folder}: {counted}, all links hold"


def _broken_configs(recipe: Recipe) -> Iterator[str]:
    if recipe.default_config not in [file.stem for file in recipe.configs()]:
        yield f"CONFIG is {recipe.default_config!r}, but there is no conf/{recipe.default_config}.toml"
    for file in recipe.configs():
        try:
            check_conflicts(load_config([file]))
        except AsrtoolError as error:
            yield str(error) if str(file) in str(error) else f"{file}: {error}"


def _broken_names(stages: Sequence[Stage]) -> Iterator[str]:
    for name, count in Counter(stage.name for stage in stages).items():
        if count > 1:
            yield f"stage {name}: {count} stages have this name"
    for path, count in Counter(path for stage in stages for path in stage.makes).items():
        if count > 1:
            yield f"{path}: {count} stages make it"


def _broken_links(stage: Stage, made: Sequence[str], find_entry: FindEntry) -> Iterator[str]:
    for need in stage.needs:
        if not any(lies_in(need, path) for path in made):
            yield f"needs {need}, which no earlier stage makes"
    for folder in stage.audio_of:
        if folder not in (*stage.needs, *stage.makes):
            yield f"audio_of has {folder}, which is in neither needs nor makes"
    for name in stage.settings:
        try:
            select(Config(), [name])
        except (AttributeError, KeyError):
            yield f"unknown settings {name!r}"
    if stage.when and not _is_switch(stage.when):
        yield f"when is {stage.when!r}, expected a true/false setting or a list"
    if not stage.makes:
        yield "makes nothing"
    if bool(stage.settings) != any("{config}" in line.text for line in stage.run):
        yield "settings and {config} go together: a stage has both or neither"
    for line in stage.run:
        yield from _broken_line(stage, line, find_entry)


def _is_switch(name: str) -> bool:
    section, _, key = name.partition(".")
    return isinstance(getattr(getattr(Config(), section, None), key, None), bool | tuple)


def _broken_line(stage: Stage, line: Line, find_entry: FindEntry) -> Iterator[str]:
    for placeholder in PLACEHOLDER.findall(line.text):
        if placeholder not in ("{work}", "{config}"):
            yield f"unknown placeholder {placeholder} in: {line.text}"
    for path in re.findall(r"\{work\}/(\S+)", line.text):
        if not any(lies_in(path, known) for known in (*stage.needs, *stage.makes)):
            yield f"{path} is neither in needs nor in makes, in: {line.text}"
    try:
        code_digests([find_entry(line.argv("/work", "/work/config.toml"))])
    except (AsrtoolError, ValueError) as error:  # ValueError: a quotation mark that is not closed
        yield str(error)
