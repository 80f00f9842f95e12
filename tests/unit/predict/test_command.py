"""Output and refusals of `asrtool theory`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import error_of, run_command
from systems import ALL

DRAWN = ("allreduce", "adpsgd", "bmuf")
TURNING = "distributed.adpsgd.ring=systems:turning_ring"


def run(*words: str) -> str:
    return run_command("theory", *words).output


@pytest.mark.parametrize("num", [1, 2, 5])
@pytest.mark.parametrize("name", [*dict.fromkeys(name for name, _ in ALL), "none"])
def test_every_strategy_has_an_answer_in_words_and_as_json(name: str, num: int) -> None:
    asked = ["--strategy", name, "--num-learners", str(num), "--rate", "0.01", "--slow", f"{num - 1}:3"]
    words = run(*asked)
    for title in ("Mixing", "Staleness", "Constants", "Bounds", "Largest stable rate"):
        assert f"\n{title}" in words
    found = json.loads(run(*asked, "--json"), parse_constant=pytest.fail)
    assert found["num_learners"] == num
    assert found["bounds"]


def test_json_has_the_matrix_and_what_a_person_would_compute_by_hand() -> None:
    found = json.loads(run("--strategy", "adpsgd-fixed", "--num-learners", "8", "--rate", "0.02", "--json"))
    mixing = found["mixing"]["in_rounds"]
    assert mixing["matrix"][0] == pytest.approx([1 / 3, 1 / 3, 0, 0, 0, 0, 0, 1 / 3])
    assert mixing["second_eigenvalue"] == pytest.approx(0.804738, abs=1e-6)
    assert mixing["steps_to_tenth"] == pytest.approx(10.6, abs=0.05)
    assert found["staleness"]["fractions"] == pytest.approx({"2": 1.0})
    assert found["steps_of_others"]["mean"] == pytest.approx(7)
    first = found["bounds"][0]
    assert first["value"] == pytest.approx(sum(first["terms"].values()))
    assert first["promise"] is True


@pytest.mark.parametrize(
    ("name", "times", "words"),
    [
        ("adpsgd-pairs", "constant", "drawn anew each time"),
        ("adpsgd-pairs", "exponential", "the quantile of 99.9%"),
        ("ps-async", "exponential", "the quantile of 99.9%"),
        ("ps-async", "constant", ""),
        ("allreduce", "exponential", ""),
    ],
)
def test_a_bound_says_what_the_step_times_do_not_keep(name: str, times: str, words: str) -> None:
    asked = ["--strategy", name, "--num-learners", "4", "--rate", "0.01", "--times", times]
    found = json.loads(run(*asked, "--json"))["bounds"][-1]["supposes"]
    assert (words in found) if words else not found
    assert ("holds approximately: it supposes" in run(*asked)) == bool(words)


def test_words_say_who_waits_who_is_slow_and_when_nothing_is_promised() -> None:
    slow = ("--num-learners", "4", "--slow", "2:10")
    assert "a step takes 10 times as long" in run("--strategy", "allreduce", *slow)
    assert "learner 2 10x slower" in run("--strategy", "adpsgd-random", *slow)
    assert "of learner 2" in run("--strategy", "ps-async", *slow)
    output = run("--strategy", "adpsgd", "--num-learners", "4", "--set", TURNING)
    assert "2,000 orders" in output
    assert "pessimistic for a ring with a fixed cycle" in output
    words = run("--strategy", "adpsgd-fixed", "--num-learners", "8", "--rate", "0.7")
    assert "no promise at rate 0.7: it has to be 0.0976 at most" in words
    assert ": 0.7 diverges" in words


def test_constants_that_are_given_scale_the_bound() -> None:
    asked = ("--strategy", "allreduce", "--num-learners", "4", "--rate", "0.01", "--json")
    plain = json.loads(run(*asked))["bounds"][0]["terms"]
    given = json.loads(run(*asked, "--constant", "noise=3", "--constant", "start=2"))["bounds"][0]["terms"]
    assert (given["noise"], given["start"]) == pytest.approx((3 * plain["noise"], 2 * plain["start"]))


@pytest.mark.parametrize(("name", "settings"), [one for one in ALL if one[0] in DRAWN])
def test_a_figure_is_drawn_and_is_the_same_each_time(name: str, settings: dict[str, object], tmp_path: Path) -> None:
    sets = [w for key, value in settings.items() for w in ("--set", f"distributed.{name}.{key}={value}".lower())]
    sets = ["--set", TURNING] if name == "adpsgd" else sets
    for out in ("a.svg", "b/c.svg"):
        path = str(tmp_path / out)
        run("--strategy", name, "--num-learners", "4", "--rate", "0.01", "--steps", "30", "--plot", path, *sets)
    drawn = (tmp_path / "a.svg").read_bytes()
    assert drawn == (tmp_path / "b/c.svg").read_bytes()
    assert b"predicted" in drawn
    assert b"measured" in drawn


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--rate", "0"], "--rate 0: "),
        (["--rate", "nan"], "--rate nan: "),
        (["--rate", "-1"], "--rate -1: "),
        (["--slow", "9:2"], "choose 0 to 3"),
        (["--slow", "1"], "RANK:FACTOR"),
        (["--strategy", "adpsgd-fixd"], "adpsgd-fixed"),
        (["--strategy", "single"], "choose another one"),
        (["--strategy", "h-adpsgd", "--set", "distributed.h-adpsgd.node_size=3"], "expected one that divides it"),
        (["--constant", "beta=1"], "smoothness, noise, between, start"),
        (["--constant", "smoothness=0"], "X above 0"),
        (["--constant", "noise=-1"], "X above 0"),
        (["--constant", "noise=much"], "X above 0"),
        (["--plot", "here.gif"], "theory.svg"),
        (["--rate", "9", "--plot", "here.svg"], "choose a smaller --rate"),
        (["--measure", "nowhere"], "name the --work of an `asrtool run`"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_what_to_do(words: list[str], expected: str) -> None:
    if "--strategy" not in words:
        words = ["--strategy", "adpsgd-fixed", *words]
    error = str(error_of("theory", "--num-learners", "4", *words))
    assert expected in error
    assert "\n" not in error
