"""A learner that joins a training: what it begins with, and how it becomes one of those that train."""

from __future__ import annotations

import dataclasses
import logging

from asrtool.distributed import joining
from asrtool.distributed.members import Ended
from asrtool.distributed.strategy import Strategy
from asrtool.models.acoustic import AcousticModel
from asrtool.train.checkpoint import State, load_newest, state_of
from asrtool.train.checkpointer import Checkpointer
from asrtool.train.cuts import Cuts


def let_join(checkpointer: Checkpointer, state: State) -> None:
    """From here on learners can join those that begin with `state`."""
    begin = {"run": checkpointer.run, "state": dataclasses.asdict(state)}
    joining.let_join(checkpointer.directory.parent, checkpointer.world, begin)


def begin_of(checkpointer: Checkpointer) -> State:
    """That `state`, for one that joins, with the seconds since."""
    begin, since_s = joining.read_begin(checkpointer.world.store)
    checkpointer.run = begin["run"]
    state = state_of(begin["state"])
    state.seconds += since_s
    return state


def join(checkpointer: Checkpointer, strategy: Strategy, model: AcousticModel, cuts: Cuts) -> None:
    """Be one of the learners that train, with the weights of another; those of the last checkpoint where they exchange
    none.

    Only what is before a cut may be in the weights that it has there. So the cut from which on this learner has a part
    is looked up behind its weights, and it trains nothing before all others can see that it has. Raises Ended.
    """
    world = checkpointer.world
    assert world.members
    neighbour = strategy.adopt()
    if neighbour is None and (newest := load_newest(checkpointer.directory)):
        model.load_state_dict(newest[0]["weights"])
    cut = cuts.join()
    strategy.join(cut)
    joined = world.members.join(world.store, world.rank, cut)
    if not (joined and joining.is_current(checkpointer.directory.parent, world.attempt)):
        raise Ended
    if strategy.ema:
        strategy.ema.restart()
    whose = "the last checkpoint" if neighbour is None else f"learner {neighbour}"
    logging.info("joined as learner %d, with the weights of %s and a new optimizer", world.rank, whose)
