"""Exponential moving average (EMA) of the weights of a learner over its steps.

m <- d m + (1 - d) w after each step. In the n-th step d = min(decay, (1 + n) / (10 + n)), so that
the first weights are soon forgotten. This is linear: if learners step equally often, the mean of
their averages is the average of their mean. So each keeps its own average, of its own weights, of
the weights of a server, or of shared weights.

Of P trained parameters and float buffers a learner keeps P more values, on the device of its model.
A step reads 2 P and writes P values.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from asrtool.distributed.strategies.update import trained_parameters
from asrtool.distributed.weights.flat import FlatWeights, counters, float_buffers
from asrtool.distributed.world import World


class Ema:
    """EMA of `source` in `model`, its copy, with its statistics; counters are copied."""

    def __init__(self, source: nn.Module, decay: float) -> None:
        self.source = source
        self.parameters = [parameter for _, parameter in trained_parameters(source)]
        self.buffers = float_buffers(source)
        self.decay = decay
        self.num_updates = 0
        self.model: Any = copy.deepcopy(source)
        self.flat = FlatWeights(self.model)
        self.mean_P = self.flat.weights_P  # mean of all learners, from a synchronisation to the next step

    def update(self) -> None:
        """Add the weights of a step to the average."""
        self.mean_P = self.flat.weights_P  # gives the memory of the last mean back
        self.num_updates += 1
        decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        for average, value in self._pairs():
            average.lerp_(value, 1 - decay)

    def restart(self) -> None:
        """Begin anew from the current weights of `source`."""
        self.num_updates = 0
        for average, value in self._pairs():
            average.copy_(value)

    def synchronise(self, world: World) -> None:
        """Compute the mean over all learners, which all call this, for `consensus`."""
        for own, source_counter in zip(counters(self.model), counters(self.source), strict=True):
            own.tensor.copy_(source_counter.tensor)
        if world.size > 1:
            self.mean_P = self.flat.weights_P.clone()
            world.mean(self.mean_P)

    def consensus(self) -> contextlib.AbstractContextManager[None]:
        """Put the mean in `model` inside the context, after `synchronise`."""
        return self.flat.moved(self.mean_P)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the learner's own state, and the state that goes with its weights."""
        weights_W, buffers_B = self.flat.weights_P.tensor_split([self.flat.num_weights])
        return {"num_updates": self.num_updates, "buffers_B": buffers_B}, {"weights_W": weights_W}

    def load_state(self, own: Mapping[str, Any], weights_state: Mapping[str, Any]) -> None:
        """Continue from both parts of `state`."""
        self.num_updates = own["num_updates"]
        self.flat.weights_P.copy_(_values_of(own, weights_state))

    def saved(self) -> dict[str, Any]:
        """Return the state that a checkpoint has for all learners, inside `consensus`."""
        return {"num_updates": self.num_updates, "weights": self.model.state_dict()}

    def load_saved(self, saved: Mapping[str, Any]) -> None:
        """Begin with the state of all learners, if this one has none of its own."""
        self.num_updates = saved["num_updates"]
        self.model.load_state_dict(saved["weights"])

    def average(self, parts: Sequence[Mapping[str, Any]]) -> None:
        """Set the averages to the mean of those in learners' parts of a checkpoint.

        Of learners with the same weights one counts.
        """
        states = [(part["learner"], part.get("shared", {})) for part in parts]
        whole = [(own["ema"], (own | shared)["ema_weights"]) for own, shared in states if "ema_weights" in own | shared]
        self.num_updates = whole[0][0]["num_updates"]
        mean_P = self.flat.weights_P.cpu().zero_()  # on the host the very same
        for own, weights_state in whole:
            mean_P.add_(_values_of(own, weights_state), alpha=1 / len(whole))
        self.flat.weights_P.copy_(mean_P)

    def _pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield each average with its value, which a strategy may have moved."""
        values = [parameter.detach() for parameter in self.parameters]
        return zip(self.flat.views, [*values, *(buffer.tensor for buffer in self.buffers)], strict=True)


def _values_of(own: Mapping[str, Any], weights_state: Mapping[str, Any]) -> Tensor:
    """Join both parts of a state to flat values."""
    return torch.cat([weights_state["weights_W"], own["buffers_B"]])
