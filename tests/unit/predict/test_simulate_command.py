"""`asrtool simulate`: what it prints and writes, and what it takes from a training."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from commands import run_command

from asrtool.cli.main import cli
from asrtool.errors import AsrtoolError
from asrtool.predict.simulate.calibrate import server_message_s, settings_of, shortest_wait_s
from asrtool.predict.simulate.clients import make_setup
from asrtool.predict.simulate.cluster import Cluster, shared_cpu_s
from asrtool.predict.simulate.lock_step import server_waits
from asrtool.predict.simulate.records import MAX_STEPS, shorten
from asrtool.predict.simulate.scenario import load_scenario
from asrtool.report.figures.training_figures import plot_training
from asrtool.report.training import read_training
from asrtool.report.watch import format_progress
from asrtool.settings.distributed import Hierarchical

SMALL = ("--set", "job.num_samples=8000", "--set", "job.batch=10")


def simulate(*words: str) -> str:
    return run_command("simulate", *words).stdout


def test_it_says_in_words_who_waits_for_whom() -> None:
    words = "--num-learners 4 --set slow.learners=3:3 --strategy allreduce --strategy adpsgd-random"
    output = simulate(*SMALL, *words.split())
    assert "% of the time for learner 3" in output
    assert "4 learners: adpsgd-random takes" in output


def test_it_says_why_a_strategy_asked_for_by_name_is_left_out() -> None:
    words = "simulate --num-learners 1,16 --set network.learners_per_node=8 --json"
    assert "hogwild" not in run_command(*words.split(), *SMALL).stderr
    named = [word for name in ("hogwild", "single", "allreduce") for word in ("--strategy", name)]
    done = run_command(*words.split(), *SMALL, *named)
    assert [row["strategy"] for row in json.loads(done.stdout)] == ["hogwild", "single", "allreduce", "allreduce"]
    first, second = done.stderr.splitlines()
    assert first.endswith("WARNING strategy hogwild: 16 learners of 8 a node have no common memory")
    assert second.endswith("WARNING strategy single: it has one learner, not 16")


@pytest.mark.parametrize(("gbit_per_s", "num"), [(100, 1), (1000, 0)])
def test_it_says_how_many_exchanges_are_skipped(gbit_per_s: float, num: int) -> None:
    words = f"--num-learners 16 --strategy adpsgd-random --set network.gbit_per_s={gbit_per_s}"
    found = simulate(*SMALL, *words.split(), "--set", "network.learners_per_node=4")
    assert found.count("adpsgd-random skips 27 % of its exchanges") == found.count("skips") == num


@pytest.mark.parametrize(
    ("numbers", "compute_ms", "unit"), [("4", 100, "seconds"), ("4", 1000, "minutes"), ("2, 4", 50_000, "hours")]
)
def test_it_draws(numbers: str, compute_ms: int, unit: str, tmp_path: Path) -> None:
    path = tmp_path / "hours.svg"
    words = ["--set", f"compute.ms={compute_ms}", "--set", "slow.learners=1:2"]
    words += [word for name in ("adpsgd-random", "none") for word in ("--strategy", name)]
    simulate(*SMALL, *words, "--num-learners", numbers.replace(" ", ""), "--plot", str(path))
    found = [element.text for element in ElementTree.parse(path).iter() if element.tag.endswith("}text")]
    assert {unit, f"{numbers} learners, one node, 400 Gbit/s; learner 1 2x slower"} <= set(found)
    assert "43.15 million parameters, 1 x 8,000 samples, batch 10" in found
    assert any(text.startswith("none (no joint model)") for text in found if text)


def test_its_records_are_drawn_and_reported_as_those_of_a_training(tmp_path: Path) -> None:
    simulate(*SMALL, "--num-learners", "4", "--set", "slow.learners=0:2", "--out", str(tmp_path / "out"))
    folders = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert "adpsgd-random-4" in folders
    assert "single-4" not in folders
    run = read_training(tmp_path / "out" / "adpsgd-random-4")
    assert run.simulated
    assert run.num_steps == 800
    assert ": epoch 1, step 800, 23 s of training, finished" in format_progress(run.folder)
    assert run.partners[0] == [1, 2, 3]
    assert run.learners[0]["compute_s"].mean() == pytest.approx(0.2)
    text = plot_training(tmp_path / "out" / "h-adpsgd-4", tmp_path / "plot").read_text(encoding="utf-8")
    assert "Simulated: nothing was trained" in text
    assert "timeline.svg" in text
    with pytest.raises(AsrtoolError, match="records of a simulation"):
        settings_of([tmp_path / "out" / "adpsgd-random-4"])


def test_of_a_long_training_the_beginning_is_written() -> None:
    scenario = load_scenario([], ["job.num_samples=1000000", "job.batch=1", "job.num_epochs=3"])
    part, fraction = shorten(scenario, 8)
    assert part.job.num_samples * part.job.num_epochs == MAX_STEPS
    assert fraction == pytest.approx(MAX_STEPS / 3e6)
    assert shorten(part, 8) == (part, 1.0)


def write_training(
    folder: Path, strategy: str, num_learners: int, compute_ms: float | None = None, **parts: float
) -> Path:
    """Write a training of 20 equal steps a learner, with half a second for saving at the tenth."""
    (folder / "learners").mkdir(parents=True)
    steps = {f"{part}_s": parts.get(part, 0.0) for part in ("compute", "comm", "wait", "data")}
    whole = {"staleness": 0, "bytes": 6_000_000, "partners": [], "skipped": 0, "loss": 1.0}
    step_s = sum(steps.values()) + 0.001
    for rank in range(num_learners):
        begins = [1e9 + (step + 1) * step_s + 0.5 * (step >= 10) for step in range(20)]
        lines = [{**steps, **whole, "step": n + 1, "samples": 8 * n + 8, "begin": at} for n, at in enumerate(begins)]
        (folder / "learners" / f"{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "metrics.jsonl").write_text("")
    servers = {name: {"num_servers": 2, "message_type": "bf16"} for name in ("ps-sync", "ps-async")}
    distributed = {"strategy": strategy, "h-adpsgd": {"node_size": 2, "message_type": "fp32"}, **servers}
    settings = {"distributed": distributed, "emulation": {"compute_ms": compute_ms}}
    (folder / "inputs.json").write_text(json.dumps({"settings": settings}))
    summary = {
        "num_epochs": 1,
        "num_samples": 20 * num_learners * 8,
        "num_parameters": 1_000_000,
        "checkpoints": [{}],
        "seconds": 9.0,
    }
    (folder / "train.json").write_text(json.dumps(summary))
    return folder


def test_settings_come_from_the_records_of_a_training(tmp_path: Path) -> None:
    train = write_training(tmp_path / "train", "allreduce", 4, compute=0.11, comm=0.002, wait=0.016, compute_ms=100)
    scenario = load_scenario([], settings_of([tmp_path]))
    assert scenario.compute.cpu_ms == pytest.approx(11, abs=1e-3)  # with what lies between two steps
    assert scenario.compute.trace == str(train / "learners" / "1.jsonl")
    assert scenario.job.batch == 8
    assert scenario.job.num_samples == 640
    assert scenario.job.parameters_m == 1
    assert scenario.network.mix_ms == pytest.approx(2)
    assert scenario.network.node_gbit_per_s == pytest.approx(4 * 6e6 * 8 / 0.016 / 1e9)
    assert scenario.saving.checkpoint_s == pytest.approx(0.501, abs=2e-3)


def test_of_those_who_wait_for_one_another_the_last_to_come_waits_for_the_message() -> None:
    """Four learners in two groups make three steps."""
    waits = [[9.0, 1.0, 2.0], [1.0, 8.0, 2.0], [4.0, 4.0], [3.0, 7.0, 9.0]]
    assert shortest_wait_s([np.array(of_one) for of_one in waits], 2) == pytest.approx((1 + 1 + 2 + 3 + 4) / 5)
    assert shortest_wait_s([np.zeros(0), np.ones(3)], 2) == 0


@pytest.mark.parametrize("spread_s", [0.0, 0.002, 0.05])
def test_messages_of_a_server_take_what_makes_learners_wait_as_they_did(spread_s: float) -> None:
    waits = server_waits(in_s=0.004, step_s=0.004, answered_L=0.004 * np.arange(1, 6), latency_s=0)
    came_KL = spread_s * np.random.default_rng(3).random((30, 5))
    waits_KL = np.array([waits(came_L, came_L, came_L) for came_L in came_KL])
    assert server_message_s(list(waits_KL.T)) == pytest.approx(0.004, rel=1e-6)


@pytest.mark.parametrize(("strategy", "num_messages"), [("ps-async", 1), ("ps-sync", 6)])
def test_a_server_reads_its_part_of_the_weights_in_the_type_of_messages(
    strategy: str, num_messages: int, tmp_path: Path
) -> None:
    """A million weights in bf16 and two servers: 1 MB a message.

    Four learners of ps-sync that wait equally long come as they are answered, one by one: four answers, the last
    gradient, and the step, which takes as long as a message.
    """
    train = write_training(tmp_path / "train", strategy, 4, compute=0.1, comm=0.002, wait=0.03)
    scenario = load_scenario([], [*settings_of([train]), f"distributed.strategy={strategy}"])
    assert scenario.network.host_gbyte_per_s == pytest.approx(num_messages * 1e6 / 0.03 / 1e9)
    settings = scenario.distributed.strategy[0].settings
    assert (settings.num_servers, settings.message_type) == (2, "bf16")  # else what they took is not predicted


def put_on_hosts(train: Path, wait_s: float) -> None:
    """Put learners 0 and 1 on a host, and 2 and 3 on another one, where they wait for `wait_s`."""
    for path in sorted((train / "learners").iterdir()):
        steps = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for step in steps:
            step |= {"host": "near"} if path.stem in "01" else {"host": "away", "wait_s": wait_s}
        path.write_text("".join(json.dumps(step) + "\n" for step in steps), encoding="utf-8")


@pytest.mark.parametrize(("near_s", "away_s"), [(0.001, 0.004), (0.02, 0.035)])
def test_hosts_that_wait_alike_have_links_alike(near_s: float, away_s: float, tmp_path: Path) -> None:
    train = write_training(tmp_path, "ps-async", 4, compute=0.1, wait=near_s)
    put_on_hosts(train, away_s)
    scenario = load_scenario([], settings_of([train]))
    assert scenario.network.latency_us == load_scenario().network.latency_us
    assert scenario.network.host_gbyte_per_s == pytest.approx(1e6 / ((near_s + away_s) / 2) / 1e9)


@pytest.mark.parametrize("strategy", ["ps-async", "h-adpsgd", "adpsgd-random"])
@pytest.mark.parametrize("factor", [1, 10])
def test_only_learners_away_from_the_store_wait_for_answers(
    strategy: str, factor: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Learners 2 and 3 wait for 81 ms of a step of 182 ms, 0 and 1 for 1 ms, also if these are slow."""
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    train = write_training(tmp_path, strategy, 4, compute=0.1, wait=0.001, compute_ms=100)
    put_on_hosts(train, 0.081)
    words = f"--strategy {strategy} --json --set slow.learners=0:{factor},1:{factor} --set saving.checkpoint_s=0"
    (row,) = json.loads(simulate("--from", str(train), *words.split(), "--set", "job.num_samples=16000"))
    near_s = 0.101 * factor + 0.001 * (strategy != "adpsgd-random")  # whose messages hide
    assert row["batches"] / row["hours"] / 3600 == pytest.approx(2 / near_s + 2 / 0.182, rel=0.01)


def test_super_learners_wait_for_gradients_and_slices_of_their_own(tmp_path: Path) -> None:
    """A million weights: 8 MB of gradients go through a node of two, and 4 MB of weights."""
    scenario = load_scenario([], settings_of([write_training(tmp_path, "h-adpsgd", 4, compute=0.1, wait=0.03)]))
    assert scenario.network.node_gbit_per_s == pytest.approx(12e6 * 8 / 0.03 / 1e9)


def test_messages_within_super_learners_take_cores() -> None:
    """Eight learners on four cores, nearly all of whose steps are messages: as if these were computed."""
    sets = ["network.cores_per_node=4", "compute.ms=10", "compute.cpu_ms=0.001", "network.node_gbit_per_s=0.16"]
    sets += ["network.efficiency=1", "job.parameters_m=1", "network.learners_per_node=0"]
    setup = make_setup(Cluster(load_scenario([], sets), 8, False), "h-adpsgd", Hierarchical(node_size=2))
    message_s = 12e6 / (0.16e9 / 8)
    waited_s = setup.tail_s - 4e6 / (0.16e9 / 8)
    assert waited_s == pytest.approx(shared_cpu_s(message_s, 0.01, 8, 4, False) - message_s, rel=1e-3)
    assert waited_s == pytest.approx(message_s, rel=0.1)  # half of the cores that they want


def test_a_training_that_waited_for_data_is_bound_by_reading(tmp_path: Path) -> None:
    train = write_training(tmp_path / "train", "none", 2, compute=0.05, data=0.05)
    assert load_scenario([], settings_of([train])).loading.ms == pytest.approx(101)


def test_learners_that_compute_on_the_same_cores_share_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    train = write_training(tmp_path / "train", "none", 4, compute=0.199)
    summary = json.loads((train / "train.json").read_text(encoding="utf-8"))
    (train / "train.json").write_text(json.dumps({**summary, "device": "cpu", "num_threads": 2}))
    words = ("--from", str(train), "--strategy", "none", "--json", "--set", "saving.checkpoint_s=0")
    rows = json.loads(simulate(*words, "--num-learners", "1,2,4,8"))
    assert [row["batches"] / row["hours"] / 3600 for row in rows] == pytest.approx([10, 20, 20, 20], rel=0.02)


def test_what_a_training_took_is_what_is_predicted_for_the_same_learners(tmp_path: Path) -> None:
    train = write_training(tmp_path / "train", "bmuf", 4, compute=0.1, wait=0.02)
    words = "--strategy bmuf --json --set distributed.bmuf.block_steps=1 --set network.learners_per_node=0"
    rows = json.loads(simulate("--from", str(train), *words.split(), "--set", "saving.checkpoint_s=0"))
    assert rows[0]["hours"] * 3600 / 20 == pytest.approx(0.121, rel=0.01)
    np.testing.assert_allclose(rows[0]["fractions"]["wait"], 0.02 / 0.121, rtol=0.02)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--scenario", "swb200"], "did you mean swb2000-v100?"),
        (["--plot", "hours.txt"], "expected a name that ends with .svg"),
        (["--from", "/nowhere"], "name OUT of asrtool train"),
    ],
)
def test_a_mistake_of_the_command_gets_one_line(words: list[str], expected: str) -> None:
    with pytest.raises(Exception, match=expected):
        CliRunner().invoke(cli, ["simulate", *words], catch_exceptions=False)


def test_what_is_uncertain_makes_times_intervals(tmp_path: Path) -> None:
    """Intervals go from one end to the other; neither is the scenario itself."""
    mine = tmp_path / "mine.toml"
    ends = 'low = ["compute.ms=50"]\nhigh = ["compute.ms=400", "network.latency_us=1"]'
    mine.write_text(f'[compute]\nms = 100\n[uncertain]\n{ends}\nwhy = "the card"\n', encoding="utf-8")
    words = ("--scenario", str(mine), *SMALL, "--num-learners", "4", "--strategy", "none", "--strategy", "allreduce")
    rows = json.loads(simulate(*words, "--json"))
    for place, compute_ms in enumerate(("50", "400")):
        at_end = json.loads(simulate(*words, "--json", "--set", f"compute.ms={compute_ms}"))
        assert [row["hours_interval"][place] for row in rows] == pytest.approx([row["hours"] for row in at_end], 0.01)
    for row in rows:
        assert row["hours_interval"][0] < row["hours"] < row["hours_interval"][1]
    text = simulate(*words, "--plot", str(tmp_path / "hours.svg"))
    assert "| none | 4 | 10 to 80 s |" in text
    assert "Times are intervals, compute.ms=50 to compute.ms=400, network.latency_us=1, since the card is not" in text
    known = simulate(*words, "--set", "compute.ms=100", "--set", "network.latency_us=10")
    assert "| none | 4 | 20 s |" in known
    assert "interval" not in known
    mine.write_text('[uncertain]\nhigh = ["compute.speed=3"]\n', encoding="utf-8")
    with pytest.raises(AsrtoolError, match="speed"):
        simulate("--scenario", str(mine), *SMALL)
