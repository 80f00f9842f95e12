"""Finding a recipe, its configuration files and the paths of a site."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from toy import SMALL_RECIPE, write_recipe

from asrtool.errors import AsrtoolError
from asrtool.local.corpus import open_corpus
from asrtool.recipe.plan import choose_stages
from asrtool.recipe.recipe import Recipe, find_recipe, load_recipe, load_settings
from asrtool.recipe.stage import number_stages

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return load_recipe(write_recipe(tmp_path / "checkout" / "recipes" / "mine", small=2, large=4))


def test_a_recipe_is_loaded_from_its_folder(recipe: Recipe) -> None:
    assert (recipe.name, recipe.default_config) == ("mine", "small")
    assert [stage.name for stage in recipe.stages] == ["only"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ny = (\n", "line 2: SyntaxError: "),
        ("\n\nundefined\n", "line 3: NameError: name 'undefined' is not defined"),
        ("from asrtool.recipe.stage import Stage\n\nSTAGES = (Stage('a'),)\n", "line 3: TypeError: "),
        ("CONFIG = 'mini'\n", "STAGES is no tuple of Stage"),
        (SMALL_RECIPE.replace('CONFIG = "small"', ""), "CONFIG is no text"),
    ],
)
def test_a_broken_recipe_is_reported_in_one_line(recipe: Recipe, text: str, message: str) -> None:
    (recipe.folder / "recipe.py").write_text(text)
    with pytest.raises(AsrtoolError) as caught:
        load_recipe(recipe.folder)
    assert str(caught.value).startswith(f"{recipe.folder / 'recipe.py'}: {message}")
    assert "\n" not in str(caught.value)


def test_without_a_name_the_checkout_around_the_current_directory_is_taken(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swbd = recipe.folder.parent / "swbd"
    swbd.mkdir()
    (swbd / "recipe.py").write_text(SMALL_RECIPE)
    deep = swbd / "exp" / "logs"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert find_recipe(None) == swbd
    assert find_recipe("mine") == recipe.folder
    monkeypatch.chdir(recipe.folder.parents[1])
    assert find_recipe("recipes/mine") == recipe.folder


def test_an_unknown_recipe_is_reported_with_the_known_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AsrtoolError, match=r"^fisher: no recipe, expected a folder with recipe\.py; known are .*swbd"):
        find_recipe("fisher")


def test_a_configuration_is_a_name_or_a_file(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("[lm]\norder = 5\n")
    assert load_settings(recipe, [], []).lm.order == 2
    assert load_settings(recipe, ["large"], []).lm.order == 4
    assert load_settings(recipe, ["large", str(tmp_path / "own.toml")], []).lm.order == 5
    assert load_settings(recipe, [str(tmp_path / "own.toml"), "large"], []).lm.order == 4
    assert load_settings(recipe, [str(tmp_path / "own.toml")], []).lm.order == 5
    assert load_settings(recipe, ["large"], ["lm.order=1"]).lm.order == 1
    with pytest.raises(AsrtoolError, match=r"^lagre: no such configuration in .*/conf; did you mean large\?$"):
        load_settings(recipe, ["lagre"], [])


def test_paths_of_a_site_lie_under_the_configuration_and_under_set(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (recipe.folder / "conf" / "small.toml").write_text('[paths]\nan4 = ""\nldc97s62 = "swb"\nown_dev = ""\n')
    (recipe.folder / "paths.toml").write_text(
        '[paths]\nan4 = "/site/an4"\nldc97s62 = "/x"\nown_train = ["data", "/d"]\n'
    )
    paths = load_settings(recipe, [], ["paths.own_test=some/test data", "paths.own_dev=/dev data"]).paths
    assert paths == {
        "an4": "",
        "ldc97s62": str(recipe.folder / "conf" / "swb"),  # relative to its file
        "own_train": (str(recipe.folder / "data"), "/d"),
        "own_dev": "/dev data",
        "own_test": str(tmp_path / "some/test data"),  # relative to the current directory
    }
    monkeypatch.setenv("HOME", "/home/someone")
    assert load_settings(recipe, [], ["paths.an4=~/an4"]).paths["an4"] == "/home/someone/an4"


def test_the_site_may_have_paths_of_a_corpus_that_only_the_command_line_names(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "diaries.py").write_text(
        "from asrtool.local.corpus import Corpus, Release\n"
        "class Diary(Corpus):\n"
        "    name, title, roles, releases = 'diary', 'Diary', ('train',), (Release('My_Diary', 'a diary'),)\n"
        "    def prepare(self, corpus, out, data): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (recipe.folder / "conf" / "small.toml").write_text("")
    (recipe.folder / "paths.toml").write_text('[paths]\nmy_diary = "here"\n')
    loaded = load_settings(recipe, [], ["data.train=diaries:Diary"])
    assert loaded.paths == {"my_diary": str(recipe.folder / "here")}
    with pytest.raises(AsrtoolError, match=r"paths.toml: unknown key paths.my_diary"):
        load_settings(recipe, [], [])


def test_the_synthetic_corpora_stay_synthetic_where_a_site_has_the_releases(tmp_path: Path) -> None:
    folder = tmp_path / "swbd"
    shutil.copytree(ROOT / "recipes" / "swbd", folder, ignore=shutil.ignore_patterns("exp*", "paths.toml"))
    corpora = map(open_corpus, ("swbd", "fisher", "hub5", "rt03"))
    site = {release.key: f"/site/{release.key}" for corpus in corpora for release in corpus.releases}
    (folder / "paths.toml").write_text("[paths]\n" + "".join(f'{key} = "{path}"\n' for key, path in site.items()))
    swbd = load_recipe(folder)
    for config in ("mini", "ci"):
        assert (
            load_settings(swbd, [config], []).paths
            == load_settings(swbd, [config, "distributed/bmuf"], []).paths
            == dict.fromkeys(site, "")
        )
    for config in ("swb300", "swb2000"):
        assert load_settings(swbd, [config], []).paths == site
    given = load_settings(swbd, ["mini"], ["paths.ldc97s62=/given"]).paths
    assert given == dict.fromkeys(site, "") | {"ldc97s62": "/given"}


def test_stages_are_chosen_by_number_or_name(recipe: Recipe) -> None:
    stages = load_recipe(ROOT / "recipes" / "swbd").stages
    assert choose_stages(stages, None, None) == range(21)
    assert choose_stages(stages, "7", "7") == range(15, 16)
    assert choose_stages(stages, "features", "graph") == range(3, 15)
    assert choose_stages(stages, "5c", "5e") == choose_stages(stages, "targets", "realign") == range(10, 13)
    assert choose_stages(stages, "8b", "9") == choose_stages(stages, "nnlm", "decode") == range(17, 19)
    with pytest.raises(AsrtoolError, match=r"^trian: no such stage; did you mean train\?$"):
        choose_stages(stages, "trian", None)
    with pytest.raises(AsrtoolError, match=r"^12: no such stage; known are 0 to 11 or corpus, prepare"):
        choose_stages(stages, None, "12")
    with pytest.raises(AsrtoolError, match=r"^--stage train comes after --stop-stage 2"):
        choose_stages(stages, "train", "2")


def test_stages_have_the_agreed_names_and_positions() -> None:
    names = ["corpus", "prepare", "features", "tokenizer", "lang", "lm", "graph"]
    names += ["train", "average", "decode", "score", "report"]
    for folder in (ROOT / "recipes").glob("*/recipe.py"):
        stages = load_recipe(folder.parent).stages
        numbers = {number: stage.name for number, stage in zip(number_stages(stages), stages, strict=True)}
        aside = {
            "1b": "text",
            "3b": "cutter",
            "3c": "cut",
            "5b": "aligner",
            "5c": "targets",
            "5d": "hybrid",
            "5e": "realign",
            "5f": "start",
            "8b": "nnlm",
        }
        if folder.parent.name == "own":
            aside["1c"] = "check"
        assert numbers == {**{str(number): name for number, name in enumerate(names)}, **aside}


# Installed without a checkout


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


def test_an_installed_recipe_writes_and_reads_paths_in_the_current_directory_and_any_other_beside_it(
    recipe: Recipe, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert recipe.default_work == recipe.folder / "exp"
    assert load_recipe(package / "recipes" / "mine").default_work == tmp_path / "exp" / "mine"
    (tmp_path / "paths.toml").write_text('[paths]\nan4 = "here/an4"\n')
    (recipe.folder / "paths.toml").write_text('[paths]\nan4 = "an4"\n')
    installed = load_recipe(package / "recipes" / "mine")
    (installed.folder / "paths.toml").write_text('[paths]\nan4 = "lost by an update"\n')
    assert load_settings(recipe, [], []).paths["an4"] == str(recipe.folder / "an4")
    assert load_settings(installed, [], []).paths["an4"] == str(tmp_path / "here" / "an4")
