"""An exponential moving average (EMA) of the weights of a learner over its steps, and the mean of those of several.

m <- d m + (1 - d) w after each step, with d = min(decay, (1 + n) / (10 + n)) in the n-th of them, so that the first
weights are soon forgotten. This is linear: where learners step equally often, the mean of their averages is the average
of their mean. So each keeps its own, whatever its weights are: its own, those of a server, or those that all share.

Of P trained parameters and float buffers a learner keeps P values more, where its model computes. A step reads 2 P and
writes P values.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from asrtool.distributed.strategies.update import trained_parameters
from asrtool.distributed.weights.buffers import counters, float_buffers
from asrtool.distributed.weights.flat import FlatWeights
from asrtool.distributed.world import World


class Ema:
    """That of `source`, in `model`, a copy of it. Statistics of batches are averaged likewise; counters are copied."""

    def __init__(self, source: nn.Module, decay: float) -> None:
        self.source = source
        self.parameters = [parameter for _, parameter in trained_parameters(source)]
        self.buffers = float_buffers(source)
        self.decay = decay
        self.num_updates = 0
        self.model: Any = copy.deepcopy(source)
        self.flat = FlatWeights(self.model)
        self.mean_P = self.flat.weights_P  # of all learners, from a synchronisation to the next step

    def update(self) -> None:
        """After a step."""
        self.mean_P = self.flat.weights_P  # gives the memory of the last mean back
        self.num_updates += 1
        decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        for average, value in self._pairs():
            average.lerp_(value, 1 - decay)

    def restart(self) -> None:
        """Begin anew from the weights that `source` has."""
        self.num_updates = 0
        for average, value in self._pairs():
            average.copy_(value)

    def synchronise(self, world: World) -> None:
        """Find the mean over the learners of `world`, all of which call this, for `consensus`."""
        for own, of_source in zip(counters(self.model), counters(self.source), strict=True):
            own.tensor.copy_(of_source.tensor)
        if world.size > 1:
            self.mean_P = self.flat.weights_P.clone()
            world.mean(self.mean_P)

    @contextlib.contextmanager
    def consensus(self) -> Iterator[None]:
        """After `synchronise`: inside, `model` holds the mean."""
        own_P = self.flat.weights_P
        self.flat.move(self.mean_P)
        try:
            yield
        finally:
            self.flat.move(own_P)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What `load_state` needs: what is this learner's own, and what one of the same weights has as well."""
        weights_W, buffers_B = self.flat.weights_P.tensor_split([self.flat.num_weights])
        return {"num_updates": self.num_updates, "buffers_B": buffers_B}, {"weights_W": weights_W}

    def load_state(self, own: Mapping[str, Any], of_weights: Mapping[str, Any]) -> None:
        """Continue from both."""
        self.num_updates = own["num_updates"]
        self.flat.weights_P.copy_(_values_of(own, of_weights))

    def saved(self) -> dict[str, Any]:
        """What a checkpoint has of all learners, inside `consensus`."""
        return {"num_updates": self.num_updates, "weights": self.model.state_dict()}

    def load_saved(self, saved: Mapping[str, Any]) -> None:
        """Begin with that of all learners, where this one finds nothing of its own."""
        self.num_updates = saved["num_updates"]
        self.model.load_state_dict(saved["weights"])

    def _pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Each average with the value that it is of, which a strategy may have moved to another place."""
        values = [parameter.detach() for parameter in self.parameters]
        return zip(self.flat.views, [*values, *(buffer.tensor for buffer in self.buffers)], strict=True)


class MeanOfEmas:
    """The mean of what learners have in their parts of a checkpoint, in `model`, a copy of that of one of them."""

    def __init__(self, ema: Ema) -> None:
        self.model: Any = copy.deepcopy(ema.model)
        self.flat = FlatWeights(self.model)
        self.mean_P = self.flat.weights_P.cpu()  # on the host the very same
        self.num_updates = 0

    def find(self, parts: Sequence[Mapping[str, Any]]) -> None:
        """Of these parts. Of learners of the same weights that counts which has them."""
        states = [(part["learner"], part.get("shared", {})) for part in parts]
        whole = [(own["ema"], (own | shared)["ema_weights"]) for own, shared in states if "ema_weights" in own | shared]
        self.num_updates = whole[0][0]["num_updates"]
        self.mean_P.zero_()
        for own, of_weights in whole:
            self.mean_P.add_(_values_of(own, of_weights), alpha=1 / len(whole))
        self.flat.weights_P.copy_(self.mean_P)

    def saved(self) -> dict[str, Any]:
        """As that of an Ema."""
        return {"num_updates": self.num_updates, "weights": self.model.state_dict()}


def _values_of(own: Mapping[str, Any], of_weights: Mapping[str, Any]) -> Tensor:
    """The flat values of both states."""
    return torch.cat([of_weights["weights_W"], own["buffers_B"]])
