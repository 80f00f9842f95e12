"""Where recipes are looked for, and where what belongs to a site lies, in a checkout and installed without one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from toy import write_recipe

from asrtool.recipe.recipe import Recipe, find_recipe, load_recipe, load_settings

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """recipes/mine of a person's project."""
    return load_recipe(write_recipe(tmp_path / "project" / "recipes" / "mine", small=2))


@pytest.fixture
def package(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of asrtool as a wheel leaves it, with recipes mine and swbd."""
    package = tmp_path / "site-packages" / "asrtool"
    for name in ("mine", "swbd"):
        shutil.copytree(recipe.folder, package / "recipes" / name)
    monkeypatch.setattr("asrtool.recipe.recipe.PACKAGE", package)
    return package


def test_without_a_name_the_current_directory_is_taken_if_it_is_a_recipe(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recipe.folder)
    assert find_recipe(None) == recipe.folder
    assert find_recipe("swbd") == ROOT / "recipes" / "swbd"
    monkeypatch.chdir(recipe.folder / "conf")
    assert find_recipe(None) == ROOT / "recipes" / "swbd"


def test_a_recipe_around_the_current_directory_goes_before_an_installed_one_of_its_name(
    recipe: Recipe, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recipe.folder.parents[1])
    assert find_recipe("mine") == recipe.folder
    assert find_recipe(None) == find_recipe("swbd") == package / "recipes" / "swbd"


def test_an_installed_recipe_writes_to_a_folder_of_its_name_in_the_current_directory(
    recipe: Recipe, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert recipe.default_work == recipe.folder / "exp"
    assert load_recipe(package / "recipes" / "mine").default_work == tmp_path / "exp" / "mine"


def test_an_installed_recipe_reads_the_paths_of_the_current_directory_and_any_other_those_beside_it(
    recipe: Recipe, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paths.toml").write_text('[paths]\nan4 = "here/an4"\n')
    (recipe.folder / "paths.toml").write_text('[paths]\nan4 = "an4"\n')
    installed = load_recipe(package / "recipes" / "mine")
    (installed.folder / "paths.toml").write_text('[paths]\nan4 = "lost by an update"\n')
    assert load_settings(recipe, [], []).paths["an4"] == str(recipe.folder / "an4")
    assert load_settings(installed, [], []).paths["an4"] == str(tmp_path / "here" / "an4")
