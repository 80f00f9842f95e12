"""A strategy outside asrtool says of itself what learners can do by it, and is refused where it is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainings import toy_job

from asrtool.distributed.world import World
from asrtool.errors import AsrtoolError
from asrtool.settings import registry
from asrtool.settings.distributed import Distributed, joinable_strategies
from asrtool.settings.toml_files import load_config
from asrtool.train.run import prepare

GOSSIP = ("adpsgd", "adpsgd-fixed", "adpsgd-random", "none")
NAMES = registry.names("strategy")


def distributed(strategy: str, *more: str) -> Distributed:
    return load_config([], [f"distributed.strategy={strategy}", *more]).distributed


@pytest.mark.parametrize("name", NAMES)
def test_strategies_of_the_toolkit_say_of_themselves_what_learners_can_do(name: str) -> None:
    found = distributed(name)
    assert found.survives == (name in (*GOSSIP, "h-adpsgd"))
    assert found.joinable == (name in GOSSIP)
    assert found.node_size(4) == (4 if name == "h-adpsgd" else 1)
    assert joinable_strategies() == list(GOSSIP)


@pytest.mark.parametrize(
    ("name", "setting", "expected"),
    [
        ("h-adpsgd", "h-adpsgd.outer=adpsgd-d1", (False, False, 4)),  # they wait for others
        ("h-adpsgd", "h-adpsgd.node_size=2", (True, False, 2)),
        ("own_components:Gossiping", "lr_scale=1", (True, True, 1)),
        ("own_components:InNodes", "lr_scale=1", (False, False, 4)),
        ("own_components:InNodes", "InNodes.node_size=2", (False, False, 2)),
    ],
)
def test_settings_say_it_too_and_those_of_an_own_strategy(
    name: str, setting: str, expected: tuple[bool, bool, int]
) -> None:
    found = distributed(name, f"distributed.{setting}")
    assert (found.survives, found.joinable, found.node_size(4)) == expected


def test_one_that_says_nothing_can_do_nothing() -> None:
    silent = distributed("own_components:silent")
    assert (silent.survives, silent.joinable, silent.node_size(4)) == (False, False, 1)


@pytest.mark.parametrize("name", ["own_components:StepEach", "ps-async", "hogwild"])
def test_the_rate_follows_no_batch_of_all_where_each_is_a_step(name: str) -> None:
    batch = ("distributed.reference_batch_s=20", "distributed.global_batch_s=40")
    config = load_config([], [f"distributed.strategy={name}", *batch])
    with pytest.raises(ValueError, match=f"with strategy {name} each learner's batch is a step by itself"):
        config.distributed.check(config)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("forgetful", r"= own_components:forgetful returned NoneType, expected asrtool\.\S*:Strategy; return one"),
        ("Claiming", r"= own_components:Claiming says that its learners survive others, but they wait .*; leave out"),
    ],
)
def test_what_is_no_strategy_is_refused_in_one_line(
    name: str, message: str, toy: Path, toy_config: Path, tmp_path: Path
) -> None:
    job = toy_job(toy, tmp_path / "train", toy_config, [f"distributed.strategy=own_components:{name}"])
    with pytest.raises(AsrtoolError, match=message) as caught:
        prepare(job, World())
    assert "\n" not in str(caught.value)
