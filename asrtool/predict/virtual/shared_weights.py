"""Strategies with one set of weights, without lock-step: ps-async and hogwild.

ps-async: w <- w - alpha g(w'), w' being the last answer to a learner. hogwild: the same, w' being the weights at the
beginning of the step, read at once; in a real training others write meanwhile.
"""

from __future__ import annotations

import torch
from torch import Tensor

from asrtool.distributed.baselines.weight_server import Slice, split_evenly
from asrtool.distributed.strategies.update import Update, trained_parameters
from asrtool.distributed.weights.flat import views_of
from asrtool.distributed.work.work_queue import AssignmentRule
from asrtool.predict.simulate.events import Change, Event
from asrtool.predict.virtual.replica import Replica, Rule, SharedModel

NOTHING = torch.empty(0)


class Client(Replica):
    """Virtual learner of servers; `weights_P` are their last answers."""

    def __init__(self, shared: SharedModel, learner: int, num_servers: int) -> None:
        super().__init__(shared, [learner])
        self.update = Update(self.parameters, self.optimizer, shared.clip_norm, self._keep)
        self.gradients_P = NOTHING  # clipped; nothing if they are zero or NaN
        self.num_steps = [0] * num_servers  # steps of each server at its last answer
        self.num_others = [0] * num_servers  # updates by others in this step
        self.epoch = 0  # epoch of its last step
        self.waiting: set[int] = set()  # servers that have not answered in this step

    def _keep(self) -> None:
        self.gradients_P = torch.zeros(self.shared.flat.num_weights, device=self.weights_P.device)
        own = views_of(self.gradients_P, self.shared.flat.sizes, self.parameters)
        for gradient, parameter in zip(own, self.parameters, strict=True):
            if parameter.grad is not None:
                gradient.copy_(parameter.grad)


class ServerRule(Rule):
    """Servers that step by every gradient, and answer with their slice of the weights."""

    def __init__(self, shared: SharedModel, num_learners: int, num_servers: int) -> None:
        super().__init__(shared, 1, AssignmentRule())
        named_parameters = trained_parameters(shared.model)
        sizes = shared.flat.sizes[: len(named_parameters)]
        runs = split_evenly(sizes, num_servers)
        self.servers = [Slice(named_parameters[run], sizes[run], shared.make_optimizer) for run in runs]
        self.lengths = [sum(sizes[run]) for run in runs]
        for server, start_P in zip(self.servers, self._parts(shared.start_P), strict=True):
            server.weights_P.copy_(start_P)
        self.clients = [Client(shared, learner, num_servers) for learner in range(num_learners)]
        self.forks: dict[int, list[Slice]] = {}  # by epoch that some have entered and others have not

    def follow(self, event: Event) -> None:
        assert isinstance(event, Change), event
        client, trained = self.clients[event.learner], self.steps[event.learner]
        if not client.waiting:
            client.compute([trained])
            client.apply([trained])
            client.waiting = set(range(len(self.servers)))
        client.waiting.remove(event.other)
        if len(client.gradients_P):
            self._step(client, event.other)
            trained.staleness = max(client.num_others)
        if not client.waiting:
            client.gradients_P = NOTHING

    def _step(self, client: Client, number: int) -> None:
        server, gradients_P = self.servers[number], self._parts(client.gradients_P)[number]
        forks = [forks[number] for epoch, forks in self.forks.items() if client.epoch < epoch]
        for one in (*forks, server):
            one.gradients_P.copy_(gradients_P)
            one.step(client.optimizer.param_groups[0]["lr"])
        self._parts(client.weights_P)[number].copy_(server.weights_P)
        client.num_others[number] = server.num_steps - client.num_steps[number] - 1
        client.num_steps[number] = server.num_steps

    def enter(self, learner: int, epoch: int) -> None:
        """Enter an epoch: the servers fork when the first learner does.

        So the mean has the steps before the epoch only, as in a real training.
        """
        mean, client = self.means[epoch], self.clients[learner]
        client.epoch = epoch
        if mean.num_entered == 1:
            self.forks[epoch] = [server.fork() for server in self.servers]
        mean.sum_P[self.shared.flat.num_weights :] += client.buffers_B / len(self.clients)
        if mean.num_entered == len(self.clients):
            mean.add(torch.cat([fork.weights_P for fork in self.forks.pop(epoch)]))

    def _parts(self, values_P: Tensor) -> list[Tensor]:
        """Return the slice of the weights of each server, without buffers."""
        return list(values_P[: sum(self.lengths)].split(self.lengths))


class Hogwild(Rule):
    """Learners with an optimizer each, and the same weights and statistics."""

    def __init__(self, shared: SharedModel, num_learners: int) -> None:
        super().__init__(shared, 1, AssignmentRule())
        self.replicas = [Replica(shared, [learner]) for learner in range(num_learners)]
        for replica in self.replicas[1:]:
            replica.weights_P = self.replicas[0].weights_P
        self.gradients: dict[int, list[Tensor | None]] = {}
        self.num_steps = 0
        self.num_before = [0] * num_learners  # steps of all when each has made its last one
        self.epochs = [0] * num_learners  # epoch of the last step of each
        self.records: dict[int, Tensor] = {}  # weights by epoch that some have entered and others have not

    def begin(self, learner: int) -> None:
        """Compute the gradient now, since weights change before the end."""
        replica = self.replicas[learner]
        replica.compute([self.steps[learner]])
        self.gradients[learner] = [parameter.grad for parameter in replica.parameters]
        for parameter in replica.parameters:
            parameter.grad = None

    def follow(self, event: Event) -> None:
        assert isinstance(event, Change), event
        replica, trained = self.replicas[event.learner], self.steps[event.learner]
        self.shared.flat.move(replica.weights_P)
        for parameter, gradient in zip(replica.parameters, self.gradients.pop(event.learner), strict=True):
            parameter.grad = gradient
        records = [record_P for epoch, record_P in self.records.items() if self.epochs[event.learner] < epoch]
        before_P = replica.weights_P.clone() if records else NOTHING
        replica.apply([trained])
        for record_P in records:
            record_P += replica.weights_P - before_P
        trained.staleness = self.num_steps - self.num_before[event.learner]
        self.num_steps += 1
        self.num_before[event.learner] = self.num_steps

    def enter(self, learner: int, epoch: int) -> None:
        """Enter an epoch: the first learner records the weights.

        Later steps of others that belong before the epoch are added to the record.
        """
        mean = self.means[epoch]
        self.epochs[learner] = epoch
        if mean.num_entered == 1:
            self.records[epoch] = self.replicas[0].weights_P.clone()
        if mean.num_entered == len(self.replicas):
            mean.add(self.records.pop(epoch))
