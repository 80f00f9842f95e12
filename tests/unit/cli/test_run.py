"""`asrtool run` on the recipes of this checkout, without running a stage."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from commands import usage_error

from asrtool.cli.main import cli
from asrtool.errors import AsrtoolError
from asrtool.recipe.state import Run

ROOT = Path(__file__).resolve().parents[3]
RECIPES = sorted(path.parent.name for path in ROOT.glob("recipes/*/recipe.py"))


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["run", *words], catch_exceptions=False)


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_link_of_every_recipe_holds(recipe: str) -> None:
    assert run("--recipe", recipe, "--check").output.endswith("all links hold\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--config", "minni"), r"^minni: no such configuration in .*/conf; did you mean mini\?$"),
        (("--config", "ci", "--set", "lm.ordre=4"), r"unknown key lm\.ordre; did you mean lm\.order\?$"),
        (("--set", "average.num=9", "--set", "train.keep_last=5"), r"^average\.num is 9 but train\.keep_last is 5"),
        (("--executor", "slurm"), r"^features\.executor is 'slurm', expected local or dask:ADDRESS of a scheduler"),
    ],
)
def test_a_check_reads_the_rest_of_its_command_line(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(AsrtoolError, match=message):
        run("--check", *words)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_new_work_directory_has_everything_to_do(recipe: str, tmp_path: Path) -> None:
    first, *lines = run("--recipe", recipe, "--list", "--work", str(tmp_path)).output.splitlines()
    assert first == f"recipe {ROOT / 'recipes' / recipe}, work {tmp_path}"
    states = {line.split()[1]: line.split(maxsplit=2)[2] for line in lines}
    assert (states.pop("nnlm"), states.pop("text")) == ("off", "off")
    before = ("aligner", "targets", "hybrid", "realign", "start")
    assert [states.pop(name) for name in (*before, "cutter", "cut")] == ["off"] * 7
    assert states.pop("check", "to do") == "to do"  # of one's own data alone
    assert list(states.values()) == ["to do"] * 12
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_shows_the_lines_of_a_stage(tmp_path: Path) -> None:
    words = ["--dry-run", "--stage", "prepare", "--stop-stage", "1", "--work", str(tmp_path / "exp")]
    lines = run("--recipe", "swbd", *words).output.splitlines()
    assert [line.split()[2] for line in lines[1:]] == ["all", "split", "same-audio"]
    words = ["prepare", "same-audio", f"{tmp_path}/exp/manifests"]
    assert lines[-1] == shlex.join(["asrtool", *words, "--config", f"{tmp_path}/exp/config/prepare.toml"])
    assert not (tmp_path / "exp").exists()


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a work folder `exp` whose first stage has failed, for want of the data `none` there."""
    folder = tmp_path_factory.mktemp("failed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with pytest.raises(AsrtoolError, match=r"^stage 0 corpus failed .*; fix the cause, then: asrtool run --work "):
            run("--recipe", "own", "--work", "exp", "--set", "paths.own_train=none", "--set", "train.num_epochs=3")
    return folder


def settings_shown(work: Path, *words: str) -> tuple[list[str], str]:
    """Recipe, paths.own_train, train.num_epochs and lm.order of a run in `work`, and the log; nothing is changed."""
    record = (work / "config" / "run.json").read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        seen: list[Run] = []
        patch.setattr("asrtool.recipe.plan.format_states", lambda run, *_: seen.append(run) or "")
        output = run("--list", "--work", str(work), *words).output
    assert (work / "config" / "run.json").read_bytes() == record
    config = seen[0].config
    numbers = (config.train.num_epochs, config.lm.order)
    return [seen[0].recipe.name, str(config.paths.get("own_train", "-")), *map(str, numbers)], output


@pytest.mark.parametrize(
    ("words", "epochs", "order"),
    [
        ([], 3, 3),
        (["--recipe", "own", "--config", "own"], 3, 3),
        (["--unset", "train.num_epochs"], 0, 3),
        (["--set", "lm.order=4"], 3, 4),
        (["--set", "lm.order=4", "--set", "train.num_epochs=9"], 9, 4),
    ],
)
def test_a_work_folder_continues_with_what_it_was_made_by(
    words: list[str], epochs: int, order: int, failed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = ["own", str(failed / "none"), str(epochs), str(order)]
    for folder in (failed, ROOT, ROOT / "recipes" / "swbd"):
        monkeypatch.chdir(folder)
        assert settings_shown(failed / "exp", *words)[0] == expected


def test_another_configuration_drops_the_settings(failed: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[lm]\norder = 4\n")
    shown, log = settings_shown(failed / "exp", "--config", "own", "--config", str(tmp_path / "mine.toml"))
    assert shown == ["own", "-", "0", "4"]
    assert f"another --config drops --set paths.own_train={failed}/none --set train.num_epochs=3" in log


@pytest.mark.parametrize("key", ["paths.own_train", "augment.noise_dir"])
@pytest.mark.parametrize("work", ["data", "data/exp", "link/exp"])
def test_a_work_folder_in_the_data_is_refused_and_nothing_is_written(
    key: str, work: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    with pytest.raises(AsrtoolError, match=r": lies in the data .*data, expected the two apart; choose another place "):
        run("--work", work, "--recipe", "own", "--set", f"{key}=data", "--set", "features.keep_audio=true")
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "data", tmp_path / "link"]


def test_files_that_settings_name_are_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "extra.txt").write_text("more words\n")
    monkeypatch.chdir(tmp_path)
    words = ["--recipe", "own", "--set", "paths.own_train=none", "--set", "lm.extra_text=fisher,extra.txt"]
    with pytest.raises(AsrtoolError, match="stage 0 corpus failed"):
        run("--work", "exp", *words)
    monkeypatch.chdir(tmp_path / "exp")
    seen: list[Run] = []
    monkeypatch.setattr("asrtool.recipe.plan.format_states", lambda run, *_: seen.append(run) or "")
    run("--work", ".", "--list")
    assert seen[0].config.lm.extra_text == ("fisher", str(tmp_path / "extra.txt"))
    (text,) = [stage for stage in seen[0].recipe.stages if stage.name == "text"]
    assert seen[0].reads(text) == ["corpus", str(tmp_path / "extra.txt")]


def test_only_what_was_set_can_be_dropped(failed: Path, tmp_path: Path) -> None:
    with pytest.raises(
        AsrtoolError, match=r"was not made with --set lm\.order; those .* are paths.own_train, train.num_"
    ):
        run("--list", "--work", str(failed / "exp"), "--unset", "lm.order")
    with pytest.raises(AsrtoolError, match=r"was not made with --set lm\.order; leave out --unset$"):
        run("--list", "--work", str(tmp_path), "--unset", "lm.order")


def test_the_same_command_once_more_says_nothing(failed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(failed)
    words = ["--recipe", "own", "--set", "paths.own_train=none", "--set", "train.num_epochs=3"]
    assert settings_shown(failed / "exp", *words) == (["own", str(failed / "none"), "3", "3"], "\n")
    assert "continues with --recipe own --set paths.own_train=" in settings_shown(failed / "exp")[1]


def test_another_recipe_is_refused_and_nothing_is_replaced(failed: Path) -> None:
    before = {path: path.read_bytes() for path in failed.rglob("*") if path.is_file()}
    for words in (["--list"], ["--check"], ["--dry-run"], []):
        with pytest.raises(AsrtoolError, match=r"exp: made by recipe own, and --recipe is swbd; choose another --work"):
            run("--work", str(failed / "exp"), "--recipe", "swbd", *words)
    assert {path: path.read_bytes() for path in failed.rglob("*") if path.is_file()} == before


def test_a_work_folder_of_an_older_asrtool_continues_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exp" / "config").mkdir(parents=True)
    command = "asrtool run --recipe own --config own --work exp --set paths.own_train=a --set train.num_epochs=3"
    record = {"command": command, "recipe": "own", "work": str(tmp_path / "exp")}
    (tmp_path / "exp" / "config" / "run.json").write_text(json.dumps(record))
    assert settings_shown(tmp_path / "exp")[0] == ["own", str(tmp_path / "a"), "3", "3"]


def test_a_recipe_that_was_moved_is_found_by_its_name_or_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "recipes" / "own", tmp_path / "recipes" / "mine")
    (tmp_path / "exp" / "config").mkdir(parents=True)
    record = {"command": "asrtool run", "recipe": "mine", "options": ["--recipe", "/gone/mine", "--set", "lm.order=4"]}
    (tmp_path / "exp" / "config" / "run.json").write_text(json.dumps(record))
    assert settings_shown(tmp_path / "exp", "--recipe", str(tmp_path / "recipes" / "mine"))[0][3] == "4"
    with pytest.raises(AsrtoolError, match=r"^mine: no recipe, .*name one with --recipe"):
        run("--list", "--work", str(tmp_path / "exp"))
    monkeypatch.chdir(tmp_path)
    assert settings_shown(tmp_path / "exp")[0] == ["mine", "-", "0", "4"]


def test_without_any_recipe_the_command_for_own_data_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    advice = "asrtool run --recipe own --set paths.own_train=DIR"
    assert advice in run("--list", "--work", "exp").output
    assert advice not in run("--list", "--work", "exp", "--recipe", "own").output


def test_a_work_folder_of_no_run_is_refused_unless_something_says_what_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[Run] = []
    monkeypatch.setattr("asrtool.cli.run._run", lambda run, *_: began.append(run) or "")
    monkeypatch.chdir(tmp_path)
    for words in ([], ["--force"], ["--stage", "train"], ["--launch", "slurm"]):
        with pytest.raises(AsrtoolError, match=r"nowork: no run is there; name that of a run, or --recipe "):
            run("--work", "nowork", *words)
    assert not list(tmp_path.iterdir())
    assert not began
    begins = (["--recipe", "swbd"], ["--config", "ci"], ["--set", "lm.order=2"], ["--stop-stage", "prepare"])
    for words in begins:
        run("--work", "nowork", *words)
    run()
    monkeypatch.chdir(ROOT / "recipes" / "an4")
    run("--work", str(tmp_path / "nowork"))
    assert [each.recipe.name for each in began] == ["swbd"] * 5 + ["an4"]


def test_run_sh_runs_its_own_recipe_from_anywhere(tmp_path: Path) -> None:
    links = {path.parent.name: path for path in ROOT.glob("recipes/*/run.sh")}
    assert sorted(links) == RECIPES
    assert {path.resolve() for path in links.values()} == {ROOT / "recipes" / "run.sh"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    finished = subprocess.run(
        [links["an4"], "--list", "--stage", "2", "--stop-stage", "3", "--work", tmp_path],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert finished.stdout.splitlines() == [
        f"recipe {ROOT / 'recipes' / 'an4'}, work {tmp_path}",
        " 2 features     to do",
        " 3 tokenizer    to do",
    ]


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["run", "train.num_epochs=5", "lm.order=2"], "--set train.num_epochs=5 --set lm.order=2"),
        (["train", "a", "b", "c", "train.num_epochs=5"], "--set train.num_epochs=5"),
        (["run", "--train.num_epochs", "5"], "--set train.num_epochs=VALUE"),
        (["run", "--num-epochs", "5"], "Did you mean train.num_epochs?"),
    ],
)
def test_a_setting_without_set_is_answered_with_it(words: list[str], advice: str) -> None:
    assert advice in usage_error(*words)


def test_what_is_no_work_directory_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").touch()
    for work, fault in (
        ("", "--work is empty, expected a folder"),
        (tmp_path / "loop", "loop: no folder, Too many levels of symbolic links"),
        (tmp_path / "file", "file: no folder, it is a file"),
        (tmp_path / "file" / "in", "in: no folder, Not a directory"),
    ):
        with pytest.raises(AsrtoolError, match=fault):
            run("--list", "--work", str(work))
