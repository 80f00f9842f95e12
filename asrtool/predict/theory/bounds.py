"""Upper bounds on the gradient at the mean of replicas; proofs in docs/theory.md.

Each bounds the mean over K steps, 1/K sum E |grad f(mean w_k)|^2 <= start / (rate K) + noise rate + extra rate^2, if
the rate is at most `largest_rate`. Steps are rounds of all, or gradients of any learner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from asrtool.predict.theory.staleness import steps_of_others
from asrtool.predict.theory.system import SHARED, Mixing, System, mixing_in_rounds, rate_of_any_ring, rate_of_step

ROUND, GRADIENT = "round", "gradient"
UNBOUNDED_QUANTILE = 0.999  # quantile of the staleness if step times have no upper bound
UNBOUNDED = (
    f"at most tau steps of others during one; of these step times tau is the quantile of {UNBOUNDED_QUANTILE:.1%}"
)
TAKES_TURNS = "that the next learner to end a step is drawn anew each time; with these step times they soon take turns"
ONE_COPY = "2 Delta / (alpha K) + alpha beta sigma^2 / L"
IN_ROUNDS = (
    "2 Delta / (alpha K) + alpha beta sigma^2 / N"
    " + 2 alpha^2 beta^2 (sigma^2 (1 - 1/N) + 2 zeta^2 / (1 - sqrt(rho))) / (1 - sqrt(rho))"
)
OWN_TIMES = "2 N Delta / (alpha K) + alpha beta sigma^2 / N + alpha^2 beta^2 sigma^2 A"
SHARED_WEIGHTS = "2 Delta / (alpha K) + alpha beta sigma^2 + 2 alpha^2 beta^2 sigma^2 (L - 1)"
BLOCKS = f"{ONE_COPY} + 4 alpha^2 beta^2 (H - 1) (sigma^2 (1 - 1/L) + 2 (H - 1) zeta^2)"


@dataclass(frozen=True)
class Constants:
    """Constants of a model and its data that a bound needs."""

    smoothness: float = 1.0  # beta: |grad f(v) - grad f(w)| <= beta |v - w|
    noise: float = 1.0  # sigma^2: E |g - grad f|^2, g the gradient of a batch of one learner
    between: float = 0.0  # zeta^2: 1/L sum |grad f_i - grad f|^2, f_i the loss on the data of learner i
    start: float = 1.0  # Delta: f(w_0) - inf f


@dataclass(frozen=True)
class Bound:
    """start / (rate K) + noise rate + extra rate^2; `symbols` has the constants."""

    theorem: str
    formula: str
    start: float
    noise: float
    extra: float
    largest_rate: float
    symbols: Mapping[str, float]
    steps_a_round: float  # steps counted by K in the time of a step at full speed
    step: str = ROUND  # unit of K
    assumption: str = ""  # assumption that these step times meet only approximately

    def terms(self, rate: float, num_steps: float) -> dict[str, float]:
        """Return the three terms of the bound."""
        return {"start": self.start / (rate * num_steps), "noise": self.noise * rate, "extra": self.extra * rate**2}

    def value(self, rate: float, num_steps: float) -> float:
        """Return the bound; infinite if this rate is too large for it."""
        return sum(self.terms(rate, num_steps).values()) if rate <= self.largest_rate else math.inf

    @property
    def speed_up_from(self) -> float:
        """The smallest K of the regime of linear speed-up; infinite without noise.

        With rate = sqrt(start / (noise K)) the first two terms are 2 sqrt(start noise / K), which depends on the number
        of gradients of all learners alone; from this K on that rate is allowed, and the third term is no larger.
        """
        if not self.noise:
            return math.inf
        by_extra = self.extra**2 * self.start / (4 * self.noise**3)
        return max(by_extra, self.start / (self.noise * self.largest_rate**2))

    def best_rate(self, num_steps: float) -> float:
        """Return the rate that `speed_up_from` uses."""
        return math.sqrt(self.start / (self.noise * num_steps))


def bounds_of(system: System, constants: Constants, times: str) -> list[Bound | str]:
    """Return the bounds for a strategy, or reasons: in rounds, one by one."""
    if system.outer == "none":
        return ["learners that exchange nothing train a model each, and the mean of these is none"]
    if system.outer in SHARED:
        return [_shared(system, constants, times)]
    if system.outer == "bmuf":
        return [_blocks(system, constants)]
    delta, beta, num = constants.start, constants.smoothness, system.num_learners
    if system.num_replicas == 1:
        name, slowest = "Theorem 1, one copy of the weights", float(system.speeds_N.min())
        return [Bound(name, ONE_COPY, 2 * delta, beta * constants.noise / num, 0.0, 1 / beta, {"L": num}, slowest)]
    equal = bool((system.speeds_N == system.speeds_N[0]).all())
    in_rounds = [_rounds(system, constants, mixing)] if equal and (mixing := mixing_in_rounds(system)) else []
    return [*in_rounds, *([_own_times(system, constants, times)] if system.asynchronous else [])]


def _rounds(system: System, constants: Constants, mixing: Mixing) -> Bound:
    num, beta = system.num_replicas, constants.smoothness
    # orders of a person's own ring need not be drawn one independently of another
    rate = rate_of_any_ring(num) if system.has_own_ring else mixing.rate
    root = math.sqrt(rate)
    noise = constants.noise / system.node_size
    apart = noise * (1 - 1 / num) + 2 * constants.between / (1 - root)
    name = "Theorem 1, delay-by-one" if system.outer == "adpsgd-d1" else "Theorem 1, in rounds (D-PSGD)"
    extra, largest_rate = 2 * beta**2 * apart / (1 - root), (1 - root) / (2 * beta)
    symbols, slowest = {"N": num, "rho": rate, "sigma^2 of a replica": noise}, float(system.speeds_N.min())
    return Bound(name, IN_ROUNDS, 2 * constants.start, beta * noise / num, extra, largest_rate, symbols, slowest)


def _own_times(system: System, constants: Constants, times: str) -> Bound | str:
    name = "Theorem 2, at times of their own (AD-PSGD)"
    if constants.between:
        return f"{name} needs zeta^2 = 0: the fast ones would pull f to their own data"
    if system.has_own_ring:
        return f"{name} needs partners drawn independently of one another, and nobody knows a ring of your own"
    num, beta, rate = system.num_replicas, constants.smoothness, rate_of_step(system)
    root, noise, speeds_N = math.sqrt(rate), constants.noise / system.node_size, system.speeds_N
    q, tau = float(speeds_N.max() / speeds_N.sum()), longest(system, times)
    a = 4 * q / (1 - root) + 2 + 4 / num
    b = 4 * q / (1 - root) ** 2 + 4 + 4 * tau / num
    symbols = {"N": num, "rho of a step": root**2, "q": q, "tau": tau, "A": a, "B": b, "sigma^2 of a replica": noise}
    start, extra, largest_rate = 2 * num * constants.start, beta**2 * noise * a, _root_of(b, 1 / num) / beta
    all_speeds, assumption = float(speeds_N.sum()), TAKES_TURNS if times == "constant" else UNBOUNDED
    mean_noise = beta * noise / num
    return Bound(name, OWN_TIMES, start, mean_noise, extra, largest_rate, symbols, all_speeds, GRADIENT, assumption)


def _shared(system: System, constants: Constants, times: str) -> Bound | str:
    name = "Theorem 3, shared weights"
    if constants.between:
        return f"{name} needs zeta^2 = 0: the fast ones would pull f to their own data"
    num, beta, tau = system.num_learners, constants.smoothness, longest(system, times)
    extra, largest_rate = 2 * beta**2 * constants.noise * (num - 1), _root_of(2 * tau * (num - 1), 1.0) / beta
    start, noise, symbols = 2 * constants.start, beta * constants.noise, {"L": num, "tau": tau}
    all_speeds, assumption = float(system.speeds_N.sum()), "" if times == "constant" or num == 1 else UNBOUNDED
    return Bound(name, SHARED_WEIGHTS, start, noise, extra, largest_rate, symbols, all_speeds, GRADIENT, assumption)


def _blocks(system: System, constants: Constants) -> Bound | str:
    block = system.settings
    if block.block_momentum or block.block_rate != 1:
        where = "block momentum, or a block_rate other than 1"
        return f"none is proved here with {where}: with --set distributed.bmuf.block_momentum=0 there is one"
    num, beta, steps = system.num_learners, constants.smoothness, block.block_steps - 1
    apart = constants.noise * (1 - 1 / num) + 2 * steps * constants.between
    start, noise, extra = 2 * constants.start, beta * constants.noise / num, 4 * beta**2 * steps * apart
    largest_rate = min(1.0, 1 / (math.sqrt(8) * steps) if steps and num > 1 else 1.0) / beta
    symbols, slowest = {"L": num, "H": block.block_steps}, float(system.speeds_N.min())
    return Bound("Theorem 4, periodic averaging", BLOCKS, start, noise, extra, largest_rate, symbols, slowest)


def longest(system: System, times: str) -> int:
    """Return tau, the most steps of others during a step, or its 99.9 % quantile."""
    is_bounded = times == "constant"
    return max(one.bound if is_bounded else one.quantile(UNBOUNDED_QUANTILE) for one in steps_of_others(system, times))


def _root_of(a: float, b: float) -> float:
    """Return the positive x with a x^2 + b x = 1."""
    return 2 / (b + math.sqrt(b**2 + 4 * a))
