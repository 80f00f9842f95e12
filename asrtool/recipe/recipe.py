"""Find and load a recipe and its settings.

A recipe is a folder: ``recipe.py`` (CONFIG and STAGES, as data), ``conf/*.toml`` (one file an experiment) and
optionally ``paths.toml`` (the folders of a site's corpora; not under version control). The recipes of this project are
in ``recipes/`` of a checkout; a wheel installs them inside the package.
"""

from __future__ import annotations

import importlib.util
import logging
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import asrtool
from asrtool.errors import AsrtoolError
from asrtool.recipe.stage import Stage
from asrtool.settings.config import Config, check_conflicts
from asrtool.settings.toml_files import SUITS, Given, build, read_given
from asrtool.settings.values import format_value, nearest

PACKAGE = Path(asrtool.__file__).resolve().parent


@dataclass(frozen=True)
class Recipe:
    """Loaded recipe; `default_config` names a file of its conf folder."""

    folder: Path
    default_config: str
    stages: tuple[Stage, ...]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def site_paths(self) -> Path:
        """Path of ``paths.toml``: beside the recipe, or in the current directory.

        An installed recipe uses the latter, since an update would remove the file.
        """
        return (Path.cwd() if self._is_installed() else self.folder) / "paths.toml"

    @property
    def default_work(self) -> Path:
        """Default work directory: ``exp`` beside the recipe, else ``exp/NAME`` here."""
        return Path.cwd() / "exp" / self.name if self._is_installed() else self.folder / "exp"

    def _is_installed(self) -> bool:
        return self.folder.is_relative_to(PACKAGE)

    def configs(self) -> list[Path]:
        """Return configuration files; those in folders change parts of others."""
        conf = self.folder / "conf"
        return [*sorted(conf.glob("*.toml")), *sorted(conf.glob("*/*.toml"))]


def find_recipe(given: str | None) -> Path:
    """Return the folder of a recipe, given as a path or a name in recipes/.

    By default it is the current directory if that is a recipe, else swbd. Raises AsrtoolError naming the known
    recipes if there is no such recipe.
    """
    wanted = given or "swbd"
    known = _recipe_folders()
    for folder in (Path(given or "."), *(folder for folder in known if folder.name == wanted)):
        if (folder / "recipe.py").is_file():
            return folder.resolve()
    hint = f"known are {', '.join(sorted({folder.name for folder in known}))}; name one with --recipe"
    raise AsrtoolError(f"{wanted}: no recipe, expected a folder with recipe.py", hint)


def is_named(folder: Path) -> bool:
    """Return whether the recipe in `folder` can be called by its name alone."""
    return next((found for found in _recipe_folders() if found.name == folder.name), folder).resolve() == folder


def _recipe_folders() -> list[Path]:
    """Return recipes/ of the current directory and its parents, then of asrtool."""
    here = Path.cwd()
    roots = (here, *here.parents, PACKAGE.parent, PACKAGE)
    return [file.parent for root in roots for file in sorted(root.glob("recipes/*/recipe.py"))]


def load_recipe(folder: Path) -> Recipe:
    """Load ``recipe.py`` of `folder`; AsrtoolError naming file and line of a fault."""
    path = folder / "recipe.py"
    module = _load_module(path)
    stages = getattr(module, "STAGES", None)
    if not isinstance(stages, tuple) or not stages or not all(isinstance(stage, Stage) for stage in stages):
        raise AsrtoolError(f"{path}: STAGES is no tuple of Stage", "see docs/how-to/new-stage.md")
    default_config = getattr(module, "CONFIG", None)
    if not isinstance(default_config, str):
        raise AsrtoolError(f"{path}: CONFIG is no text", "name a file of conf/, for example CONFIG = 'mini'")
    return Recipe(folder, default_config, stages)


def _load_module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"recipe_{path.parent.name}", path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a custom recipe may raise anything, reported in one line
        text = str(error) if isinstance(error, AsrtoolError) else f"{type(error).__name__}: {error}"
        raise AsrtoolError(f"{path}: line {_line(error, path)}: {text}", "fix the recipe") from error
    return module


def _line(error: Exception, path: Path) -> int | None:
    """Return the line of `path` that raised `error`, the last one in a call chain."""
    if isinstance(error, SyntaxError):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == str(path)), None)


def load_settings(recipe: Recipe, configs: Sequence[str], overrides: Iterable[str]) -> Config:
    """Return the settings of a run: ``paths.toml``, configuration files, ``--set``.

    Each of `configs` names a file of the recipe's conf folder or is a path; none means the recipe's own choice. An
    empty path is not configured. Automatically chosen values are logged. Raises AsrtoolError for an unknown
    configuration, as load_config, and for settings that do not go together.
    """
    given = read_settings(recipe, configs, overrides)
    config = build_settings(given)
    for key, origin in given.origins.items():
        if origin.startswith(SUITS):
            logging.info("%s = %s: it is not set, and this %s", ".".join(key), format_value(given.values[key]), origin)
    return config


def read_settings(recipe: Recipe, configs: Sequence[str], overrides: Iterable[str]) -> Given:
    """Read the values that load_settings uses, with their origins."""
    files = [_config_file(recipe, config) for config in configs or [recipe.default_config]]
    return read_given([recipe.site_paths, *files] if recipe.site_paths.is_file() else files, overrides)


def build_settings(given: Given) -> Config:
    """Build settings that go together; AsrtoolError as load_settings."""
    config = build(given)
    check_conflicts(config)
    return config


def _config_file(recipe: Recipe, config: str) -> Path:
    path = recipe.folder / "conf" / f"{config}.toml"
    if path.is_file():
        return path
    if Path(config).is_file():
        return Path(config).resolve()
    names = [file.relative_to(recipe.folder / "conf").with_suffix("").as_posix() for file in recipe.configs()]
    raise AsrtoolError(
        f"{config}: no such configuration in {recipe.folder / 'conf'}",
        nearest(config, names) or f"known are {', '.join(names)}",
    )
