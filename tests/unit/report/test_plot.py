"""Figures of a training, and the table beside them."""

from __future__ import annotations

import itertools
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from commands import run_command
from report_work import write_lines, write_training

from asrtool.report.figures.training_figures import describe_training, plot_training, warn_of_overfitting
from asrtool.report.training import read_training


def texts(path: Path) -> list[str]:
    """Return the text of an SVG file."""
    return [element.text or "" for element in ElementTree.parse(path).iter() if element.tag.endswith("}text")]


def add_metrics(train: Path, *lines: dict[str, object]) -> None:
    with open(train / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def test_figures_with_named_axes_and_a_table_show_what_each_learner_did(tmp_path: Path) -> None:
    write_training(tmp_path / "train")
    path, again = (plot_training(tmp_path / "train", tmp_path / name) for name in ("out", "again"))
    figures = {
        "loss": ["utterances trained", "seconds of training", "loss, nats a token", "train", "dev"],
        "learners": ["steps a second", "percent of its time", "compute", "wait", "comm", "data", "between steps"],
        "timeline": ["seconds since the first step", "compute", "wait", "comm", "data"],
        "consensus": ["consensus distance / |mean|", "drift of the mean / |mean|", "utterances trained"],
    }
    for name, shown in figures.items():
        assert set(shown) <= set(texts(path.with_name(f"{name}.svg"))), name
    text = path.read_text(encoding="utf-8")
    assert sorted(re.findall(r"\]\((\S+) ", text)) == sorted(f"{name}.svg" for name in figures)
    assert len(list(path.parent.glob("[!.]*"))) == 5
    for each in path.parent.iterdir():
        assert each.read_bytes() == (again.parent / each.name).read_bytes(), each.name
    assert (
        "`adpsgd-random`, 2 learners: 40 batches in 5 s. The loss on dev was lowest after epoch 1 of 1: 1.500.\n"
        in text
    )
    assert "| 0 | 20 | 50.0 | 12.5 | 50.0 | 25.0 | 12.5 | 0.0 | 0.00 | 0 |" in text
    assert "| 1 | 20 | 50.0 | 12.5 | 50.0 | 25.0 | 12.5 | 0.0 | 1.00 | 1 |" in text


def test_a_work_folder_is_drawn_as_the_training_in_it(tmp_path: Path) -> None:
    write_training(tmp_path / "train")
    for number, folder in enumerate((tmp_path, tmp_path / "train")):
        run_command("plot", folder, tmp_path / f"out{number}")
    assert (tmp_path / "out0/training.md").read_bytes() == (tmp_path / "out1/training.md").read_bytes()


def test_the_corpora_of_each_epoch_are_a_table_with_a_row_for_like_ones(tmp_path: Path) -> None:
    write_training(tmp_path)
    for epoch, hours in ((1, 2.001), (2, 2.004), (3, 2.1)):
        values = {"step": 9 * epoch, "epoch": epoch}
        swbd = {"kind": "corpus/swbd", **values, "utterances": 1500, "fraction": 0.75, "hours": hours}
        wide = {"kind": "corpus/my/wide", **values, "utterances": 500, "fraction": 0.25, "hours": 0.5}
        add_metrics(tmp_path, swbd, wide)
    text = describe_training(read_training(tmp_path), "")
    table = (
        "| epoch | swbd | my/wide |\n| --- | --- | --- |\n"
        "| 1 to 2 | 1,500 utterances (75.0 %), 2.00 h | 500 utterances (25.0 %), 0.50 h |\n"
        "| 3 | 1,500 utterances (75.0 %), 2.10 h | 500 utterances (25.0 %), 0.50 h |\n"
    )
    assert f"\n\n{table}\n" in text


def test_a_single_learner_has_no_figure_that_sets_learners_side_by_side(tmp_path: Path) -> None:
    write_training(tmp_path / "train", num_learners=1, num_steps=1)
    out = plot_training(tmp_path / "train", tmp_path / "out").parent
    assert {path.stem for path in out.glob("*.svg")} == {"loss"}


def test_a_training_with_emulated_compute_shows_no_loss(tmp_path: Path) -> None:
    write_training(tmp_path / "train")
    settings = {"distributed": {"strategy": "allreduce"}, "emulation": {"compute_ms": 30.0}}
    (tmp_path / "train/inputs.json").write_text(json.dumps({"settings": settings}))
    path = plot_training(tmp_path / "train", tmp_path / "out")
    assert "Computation was emulated" in path.read_text(encoding="utf-8")
    assert not (path.parent / "loss.svg").exists()


@pytest.mark.parametrize("more", [{}, {"word_errors": 0.25}])
def test_wrong_words_and_targets_on_dev_are_drawn_by_epoch_where_they_are_known(
    tmp_path: Path, more: dict[str, float]
) -> None:
    write_training(tmp_path / "train", num_learners=1)
    line = {"kind": "dev", "samples": 80, "step": 40, "epoch": 2, "loss": 1.25, "errors": 0.125, **more}
    add_metrics(tmp_path / "train", line)
    path = plot_training(tmp_path / "train", tmp_path / "out")
    words = "Percent of the words on dev that are wrong: not known after epoch 1, 25.0 after epoch 2. " if more else ""
    described = "Percent of the tokens or frames on dev that are wrong: not known after epoch 1, 12.5 after epoch 2."
    assert f'![{words}{described}](errors.svg "Wrong ' in path.read_text(encoding="utf-8")
    shown = set(texts(path.parent / "errors.svg"))
    assert {"epoch", "wrong on dev, %", "tokens or frames"} <= shown
    assert ("words" in shown) == bool(more)


def test_each_of_eight_curves_looks_different_and_the_legend_is_below_them(tmp_path: Path) -> None:
    write_training(tmp_path / "train")
    rates = {"steps_per_s": 4.0, "staleness": 1.0}
    for host, step in itertools.product("abcdefgh", (20, 40)):
        add_metrics(tmp_path / "train", {"kind": f"host/node-{host}", "step": step, **rates})
    path = plot_training(tmp_path / "train", tmp_path / "out").parent / "hosts.svg"
    (legend,) = [g for g in ElementTree.parse(path).iter() if g.get("id", "").startswith("legend")]
    looks = [
        line.get("style", "")
        for line in legend.iter()
        if line.tag.endswith("}path") and "stroke" in line.get("style", "")
    ]
    assert len(set(looks)) == 8


def test_the_best_epoch_is_named_and_that_training_stopped_early(tmp_path: Path) -> None:
    write_training(tmp_path)
    losses = [2.0, 1.25, 1.5, 1.25]
    for epoch, loss in enumerate(losses, 2):
        add_metrics(tmp_path, {"kind": "dev", "samples": 80, "step": 40, "epoch": epoch, "loss": loss})
    text = describe_training(read_training(tmp_path), "")
    assert "The loss on dev was lowest after epoch 3 of 5: 1.250." in text
    assert "early" not in text
    summary = json.loads((tmp_path / "train.json").read_text(encoding="utf-8"))
    (tmp_path / "train.json").write_text(json.dumps(summary | {"stopped_early": True}), encoding="utf-8")
    assert "Training stopped early (`early_stop`): no loss was lower since epoch 3." in describe_training(
        read_training(tmp_path), ""
    )


def test_a_learner_without_a_step_and_a_drift_that_is_not_known_yet_are_drawn(tmp_path: Path) -> None:
    write_training(tmp_path / "train")
    (tmp_path / "train/learners/1.jsonl").write_text("")
    synchronisation = {"kind": "learners", "step": 20, "consensus_distance": 0.01}
    (tmp_path / "train/metrics.jsonl").write_text(json.dumps(synchronisation) + "\n")
    path = plot_training(tmp_path / "train", tmp_path / "out")
    assert "| 1 | 0 | 0.0 | 0.0 | 0.0 | 0.0 | 0.0 | 100.0 | - | - |" in path.read_text(encoding="utf-8")
    assert len(list(path.parent.glob("*.svg"))) == 4


def test_a_learner_that_was_not_always_there_is_named_and_has_its_own_time(tmp_path: Path) -> None:
    write_training(tmp_path, num_learners=5)
    for rank, kept in ((2, slice(4)), (3, slice(6)), (4, slice(2, None))):
        path = tmp_path / f"learners/{rank}.jsonl"
        write_lines(path, [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[kept]])
    summary = json.loads((tmp_path / "train.json").read_text(encoding="utf-8"))
    summary |= {"num_learners": 3, "lost": {"2": "was ended by SIGKILL"}, "joined": [4]}
    (tmp_path / "train.json").write_text(json.dumps(summary), encoding="utf-8")
    text = describe_training(read_training(tmp_path), "")
    assert (
        "`adpsgd-random`, 3 learners: 32 batches in 2 s. Learner 2 was lost (was ended by SIGKILL). Learner 4" in text
    )
    assert "Learner 4 joined later. Learner 3 was left out when training was resumed with fewer. The loss" in text
    for rank, steps, percent in ((0, 8, 25.0), (2, 4, 12.5), (3, 6, 18.8), (4, 6, 18.8)):
        assert f"| {rank} | {steps} | {percent} | 12.5 | 50.0 | 25.0 | 12.5 | 0.0 |" in text
        assert f"learner {rank} 4.00 steps a second, 12 % data, 50 % compute, 25 % wait, 12 % comm, 0 % between" in text
    (tmp_path / "train.json").unlink()
    (tmp_path / "learners/2.lost").write_text('{"why": "was ended by SIGKILL"}', encoding="utf-8")
    text = describe_training(read_training(tmp_path), "")
    assert "5 learners: 32 batches in 2 s, not finished. Learner 2 was lost (was ended by SIGKILL). The loss" in text


def test_a_training_in_its_first_steps_is_drawn(tmp_path: Path) -> None:
    write_training(tmp_path / "train")
    (tmp_path / "train/train.json").unlink()
    (tmp_path / "train/metrics.jsonl").write_text("")
    path = plot_training(tmp_path / "train", tmp_path / "out")
    assert "`adpsgd-random`, 2 learners: 40 batches in 5 s, not finished." in path.read_text(encoding="utf-8")


# The warning of overfitting


def write(train: Path, train_losses: list[float], dev_losses: list[float]) -> None:
    """Write two learners, with 10 steps of 2 utterances from one evaluation to the next."""
    write_training(train, num_learners=2, num_steps=10 * len(dev_losses))
    for path in (train / "learners").iterdir():
        steps = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        write_lines(path, [step | {"loss": train_losses[(step["step"] - 1) // 10]} for step in steps])
    lines = [{"kind": "train", "samples": 20 * len(dev_losses), "step": 1, "loss": 1.0, "seconds": 9.0}]
    lines += [
        {"kind": "dev", "samples": 20 * number, "step": 10 * number, "epoch": number, "loss": loss}
        for number, loss in enumerate(dev_losses, 1)
    ]
    write_lines(train / "metrics.jsonl", lines)


def test_dev_that_rises_while_training_falls_is_reported_with_the_losses(tmp_path: Path) -> None:
    write(tmp_path, [4.0, 2.0, 1.0, 0.5, 0.25], [3.0, 1.5, 1.25, 1.375, 1.75])
    text = warn_of_overfitting(read_training(tmp_path))
    assert "lowest, 1.250, after 60 utterances and is 1.750 at the end" in text
    assert "training fell from 1.000 to 0.250" in text
    assert text in describe_training(read_training(tmp_path), "")


def test_a_loss_that_is_no_number_is_not_the_lowest(tmp_path: Path) -> None:
    write(tmp_path, [4.0, 2.0, 1.0, 0.5, 0.25], [3.0, float("nan"), 1.25, 1.375, 1.75])
    text = describe_training(read_training(tmp_path), "")
    assert "lowest, 1.250, after 60 utterances" in text
    assert "The loss on dev was lowest after epoch 3 of 5: 1.250." in text


@pytest.mark.parametrize(
    ("train_losses", "dev_losses"),
    [
        ([4.0, 3.0, 2.0, 1.0], [3.0, 2.0, 1.5, 1.6]),  # one evaluation may be chance
        ([4.0, 3.0, 2.0, 1.0], [3.0, 2.0, 1.5, 1.4]),
        ([4.0, 2.0, 2.5, 3.0], [3.0, 1.5, 1.8, 2.5]),  # training fails altogether
        ([4.0], [3.0]),
        ([4.0], []),
    ],
)
def test_there_is_no_warning_without_it(tmp_path: Path, train_losses: list[float], dev_losses: list[float]) -> None:
    write(tmp_path, train_losses, dev_losses or [3.0])
    if not dev_losses:
        write_lines(tmp_path / "metrics.jsonl", [])
    assert not warn_of_overfitting(read_training(tmp_path))
    assert "Overfitting" not in describe_training(read_training(tmp_path), "")
