"""Join the training that others run: initial state, weights, first checkpoint."""

from __future__ import annotations

import dataclasses
import logging

from asrtool.distributed.members import joining
from asrtool.distributed.members.members import TrainingEnded
from asrtool.distributed.strategies.strategy import Strategy
from asrtool.models.acoustic import AcousticModel
from asrtool.train.checkpoints.checkpoint import State, load_newest, state_of
from asrtool.train.checkpoints.checkpointer import Checkpointer
from asrtool.train.checkpoints.coordinator import CheckpointCoordinator


def publish_rendezvous(checkpointer: Checkpointer, state: State) -> None:
    """Publish this training; learners that join start from `state`."""
    begin = {"run": checkpointer.run, "state": dataclasses.asdict(state)}
    joining.publish_rendezvous(checkpointer.directory.parent, checkpointer.world, begin)


def read_published_state(checkpointer: Checkpointer) -> State:
    """Read the published state for a joining learner; its seconds count up to now."""
    begin, since_s = joining.read_initial_state(checkpointer.world.store)
    checkpointer.run = begin["run"]
    state = state_of(begin["state"])
    state.seconds += since_s
    return state


def join(
    checkpointer: Checkpointer, strategy: Strategy, model: AcousticModel, coordinator: CheckpointCoordinator
) -> None:
    """Join the running learners with the weights of another one.

    Without exchanges they are the last checkpoint's. The first cut with a part of this learner is looked up after its
    weights were taken, since only what is before a cut may be in them. It trains nothing before all others can see
    its part. Raises TrainingEnded.
    """
    world = checkpointer.world
    assert world.members
    neighbour = strategy.adopt()
    if neighbour is None and (newest := load_newest(checkpointer.directory)):
        model.load_state_dict(newest[0]["weights"])
    cut = coordinator.join()
    strategy.join(cut)
    joined = world.members.join(world.store, world.rank, cut)
    if not (joined and joining.is_current(checkpointer.directory.parent, world.generation)):
        raise TrainingEnded
    if strategy.ema:
        strategy.ema.restart()
    whose = "the last checkpoint" if neighbour is None else f"learner {neighbour}"
    logging.info("joined as learner %d, with the weights of %s and a new optimizer", world.rank, whose)
