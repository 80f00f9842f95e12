"""The cluster model: against closed forms and brute force; nothing is lost, and the same scenario gives the same."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter

import numpy as np
import pytest
from cases import ALL, STEP_S, run, scenario

from asrtool.errors import AsrtoolError
from asrtool.predict.simulate import asynchronous
from asrtool.predict.simulate.cluster import PERIOD, Cluster, Link, Links, shared_cpu_s
from asrtool.predict.simulate.events import COUNTS, PARTS, Begin, Change, End, Event, Outcome, Round
from asrtool.predict.simulate.lock_step import answers_s

FREE = ("network.latency_us=0", "network.inner_latency_us=0", "network.gbit_per_s=1e9", "network.inner_gbit_per_s=1e9")


STARTED = ("saving.start_s=5", "saving.evaluation_s=1")
SOON = ("faults.restart_s=1", "distributed.timeout_s=0.3")


def linked(inner_gbit: float = 1e9, gbit: float = 0.0) -> tuple[str, ...]:
    """Links without latency: within a node, or where `gbit` is given between nodes of one learner."""
    outer = ("network.learners_per_node=1", f"network.gbit_per_s={gbit}") if gbit else ()
    return (f"network.inner_gbit_per_s={inner_gbit}", "network.efficiency=1", *FREE[:2], *outer)


def kind_of(event: Event) -> object:
    return event.kind if isinstance(event, Change) else type(event)


def same(one: Outcome, other: Outcome) -> None:
    for name in (*PARTS, *COUNTS, "blamed_s"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert one.seconds == other.seconds


@pytest.mark.parametrize("name", ALL)
def test_equal_learners_whose_messages_take_no_time_lose_nothing(name: str) -> None:
    outcome = run(scenario(4, 50, *FREE), name, 4)
    assert outcome.seconds == pytest.approx(50 * STEP_S, rel=1e-4)


def test_equal_learners_of_allreduce_wait_for_the_buckets_that_backward_does_not_hide() -> None:
    """A message of 4 MB in two buckets: the last is there when backward ends, the first half of backward before."""
    of = scenario(4, 50, "network.bucket_mb=2", *linked(8))
    bucket_s = 2 * 3 / 4 * 2e6 / 1e9
    assert run(of, "allreduce", 4).seconds == pytest.approx(50 * (STEP_S + bucket_s))
    slow = scenario(4, 50, "network.bucket_mb=2", *linked(0.1))
    bucket_s, first_s = 2 * 3 / 4 * 2e6 / 1.25e7, STEP_S * (0.3333 + 0.6667 / 2)
    assert run(slow, "allreduce", 4).seconds == pytest.approx(50 * (first_s + 2 * bucket_s))


def test_a_step_of_allreduce_is_the_longest_of_exponential_ones() -> None:
    """Brute force: the maximum of L exponentials, whose mean is the harmonic number of L."""
    num_learners, num_steps = 8, PERIOD
    outcome = run(
        scenario(num_learners, num_steps, "compute.distribution=exponential", *FREE), "allreduce", num_learners
    )
    harmonic = sum(1 / k for k in range(1, num_learners + 1))
    drawn = np.random.default_rng(7).exponential(STEP_S, (200_000, num_learners)).max(axis=1)
    assert drawn.mean() == pytest.approx(harmonic * STEP_S, rel=0.01)
    error = drawn.std() / math.sqrt(num_steps)
    assert abs(outcome.seconds / num_steps - drawn.mean()) < 4 * error


def test_a_ten_times_slower_learner_leaves_what_the_papers_say() -> None:
    num_learners = 4
    of = scenario(num_learners, 400, "slow.learners=0:10", *FREE)
    alone = num_learners / STEP_S
    for name in ("allreduce", "ps-sync", "bmuf", "adpsgd-d1"):
        outcome = run(of, name, num_learners)
        assert outcome.num_batches / outcome.seconds / alone == pytest.approx(0.1, rel=0.01), name
        if name != "adpsgd-d1":
            learner, fraction = outcome.blame()
            assert learner == 0
            assert fraction == pytest.approx(0.9 * (num_learners - 1) / num_learners, rel=0.02)
    for name in ("adpsgd-fixed", "adpsgd-random", "hogwild", "none"):
        outcome = run(of, name, num_learners)
        fraction = (num_learners - 1 + 0.1) / num_learners
        assert outcome.num_batches / outcome.seconds / alone == pytest.approx(fraction, rel=0.02), name


def test_a_server_takes_one_gradient_at_a_time() -> None:
    """M/D/1-like: the rate of one with more to do than it can is the inverse of what one gradient takes."""
    for num_learners, num_servers, served_s in ((8, 1, 0.05), (8, 2, 0.05), (1, 1, 0.005)):
        served = f"network.host_gbyte_per_s={4e6 / served_s / 1e9}"
        of = scenario(num_learners, 200, served, f"distributed.ps-async.num_servers={num_servers}", *FREE)
        outcome = run(of, "ps-async", num_learners)
        rate = num_servers / served_s if num_learners > 1 else 1 / (STEP_S + served_s)
        assert outcome.num_batches / outcome.seconds == pytest.approx(rate, rel=0.01 * num_servers)


def test_gradients_of_ps_sync_come_through_the_link_of_the_server_one_by_one() -> None:
    of = scenario(8, 20, *linked(gbit=8))
    assert run(of, "ps-sync", 8).seconds == pytest.approx(20 * (STEP_S + 2 * 8 * 4e6 / 1e9))


def test_a_server_of_ps_sync_that_is_slower_than_links_answers_one_by_one() -> None:
    """In the first round 8 gradients wait for each other; then learners come as they were answered, one by one.

    A round is from the answer of the last learner to the next: its step, its gradient, the update, 8 answers.
    """
    message_s = 0.004
    of = scenario(8, 20, f"network.host_gbyte_per_s={4e6 / message_s / 1e9}", *FREE)
    expected_s = 20 * STEP_S + (8 + 1 + 19 * (8 + 1 + 1) + 8) * message_s
    assert run(of, "ps-sync", 8).seconds == pytest.approx(expected_s)


def shared_in_small_steps(num: int, host_s: float, link_s: float) -> np.ndarray:
    """Return answers_s by small steps of time, in which a link carries equal parts of all messages."""
    step_s = 1e-5
    left_L, ends_L, now_s = np.full(num, link_s), np.zeros(num), 0.0
    begins_L = host_s * np.arange(num)
    while (left_L > 0).any():
        under_way = (begins_L <= now_s) & (left_L > 0)
        left_L[under_way] -= step_s / max(1, under_way.sum())
        now_s += step_s
        ends_L[under_way] = now_s
    return np.maximum(ends_L, begins_L + host_s)


@pytest.mark.parametrize("host_s", [0.0, 0.0013, 0.0039, 0.004, 0.0041, 0.02])
def test_answers_of_a_server_share_its_link(host_s: float) -> None:
    assert answers_s(5, host_s, 0.004) == pytest.approx(shared_in_small_steps(5, host_s, 0.004), abs=2e-4)
    assert answers_s(5, 0.0, 0.004) == pytest.approx(np.full(5, 0.02))
    assert answers_s(5, 0.003, 0.0) == pytest.approx(0.003 * np.arange(1, 6))


def test_means_cost_their_messages_once_a_block_or_what_is_longer_than_a_step() -> None:
    blocks = scenario(4, 40, "distributed.bmuf.block_steps=10", *linked(8))
    assert run(blocks, "bmuf", 4).seconds == pytest.approx(40 * STEP_S + 4 * 2 * 3 / 4 * 4e6 / 1e9)
    assert run(scenario(4, 40, *linked(8)), "adpsgd-d1", 4).seconds == pytest.approx(40 * STEP_S)
    assert run(scenario(4, 40, *linked(0.08)), "adpsgd-d1", 4).seconds == pytest.approx(40 * 2 * 3 / 4 * 4e6 / 1e7)


def test_super_learners_average_within_their_nodes_alone() -> None:
    """A slow learner holds back its own node; the queue gives the other node more."""
    of = scenario(4, 400, "network.learners_per_node=2", "slow.learners=0:10", *FREE)
    outcome = run(of, "h-adpsgd", 4)
    rates = outcome.steps / outcome.seconds * STEP_S
    np.testing.assert_allclose(rates, [0.1, 0.1, 1, 1], rtol=0.05)
    assert outcome.blame()[0] == 0


@pytest.mark.parametrize(
    ("name", "latency_ms", "away_s"),
    [("h-adpsgd", 50, 0.3), ("h-adpsgd", 5, 0.1), ("none", 30, 0.12), ("none", 20, 0.1), ("ps-async", 80, 0.26)],
)
def test_learners_away_from_the_store_wait_for_it(name: str, latency_ms: int, away_s: float) -> None:
    """Steps by hand: one learner draws in two round trips while it trains, and two in five.

    The first of two draws from one step's end on: two steps take as long as a draw and a step without waiting. With
    servers a step has a round trip more, which hides the draw.
    """
    of = scenario(4, 400, "network.learners_per_node=2", *FREE[1:], f"network.latency_us={1000 * latency_ms}")
    outcome = run(of, name, 4)
    rates = outcome.steps / outcome.seconds
    np.testing.assert_allclose(rates, [1 / STEP_S, 1 / STEP_S, 1 / away_s, 1 / away_s], rtol=0.02)
    assert outcome.wait_s[2] / outcome.steps[2] == pytest.approx(away_s - STEP_S, rel=0.03, abs=1e-4)
    assert outcome.data_s.max() == pytest.approx(0, abs=1e-9)


def test_exchanges_that_links_cannot_carry_are_skipped_and_cost_no_time() -> None:
    message_s = 4e6 / 1e7
    of = scenario(4, 400, *linked(gbit=0.08))
    outcome = run(of, "adpsgd-fixed", 4)
    assert outcome.seconds == pytest.approx(400 * STEP_S)
    assert (np.abs(outcome.exchanges + outcome.skipped - 400) <= 1).all()
    # there and back, each link of a node carries one exchange begun there and one begun by its neighbour
    assert outcome.exchanges[0] / outcome.seconds == pytest.approx(1 / (2 * message_s), rel=0.1)


def test_parts_of_a_message_leave_a_node_one_after_another() -> None:
    events: list[Event] = []
    servers = ("distributed.ps-async.num_servers=2", "slow.learners=0:1000,1:1000")
    run(scenario(3, 4, *servers, *linked(gbit=0.32)), "ps-async", 3, events)
    pushes = [event for event in events if isinstance(event, Change) and event.learner == 2][:2]
    assert [(event.other, event.at_s) for event in pushes] == [(0, pytest.approx(0.15)), (1, pytest.approx(0.2))]


def test_pairs_wait_for_the_answer_at_the_end_of_the_next_step() -> None:
    of = scenario(2, 100, *linked(gbit=0.32))
    outcome = run(of, "adpsgd-pairs", 2)
    assert outcome.wait_s[0] > 0
    assert outcome.wait_s[1] == 0
    period_s = outcome.seconds / outcome.steps[0]
    assert period_s == pytest.approx(2 * 4e6 / 4e7, rel=0.03)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "trouble",
    [
        ("compute.distribution=lognormal", "compute.spread=0.4", "loading.ms=90", "loading.spread=0.5"),
        ("slow.learners=1:3", "saving.every_steps=7", "saving.checkpoint_s=0.3", *STARTED),
        ("slow.step_probability=0.1", "job.num_epochs=3"),
        ("faults.lost=2:0.0004", "faults.join_h=0.0002", *SOON, "saving.every_steps=5"),
    ],
)
def test_each_batch_is_trained_once_and_times_add_up(name: str, trouble: tuple[str, ...]) -> None:
    """Learners do not divide the epoch; batches trained again after a loss are counted."""
    events: list[Event] = []
    of = scenario(
        4, 20, "job.num_samples=83", "network.learners_per_node=2" if name != "hogwild" else "job.seed=2", *trouble
    )
    outcome = run(of, name, 4, events)
    assert outcome.steps.sum() == outcome.num_batches + outcome.num_repeated
    np.testing.assert_allclose(sum(getattr(outcome, part) for part in PARTS), outcome.seconds)
    begun = (event for event in events if isinstance(event, Begin) and event.position is not None)
    trained = Counter((event.epoch, event.position) for event in begun)
    expected = set(itertools.product(range(of.job.num_epochs), range(83)))
    assert set(trained) == expected
    if not of.faults.lost:
        assert set(trained.values()) == {1}
        ends = [event for event in events if isinstance(event, End)]
        assert sum(event.wait_s for event in ends) == pytest.approx(outcome.wait_s.sum())


@pytest.mark.parametrize("name", [*ALL, "h-adpsgd by adpsgd-d1"])
def test_compiled_events_have_the_bits_of_python(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asynchronous, "MIN_ROUNDS", 0)
    name, _, outer = name.partition(" by ")
    for seed, num_learners in enumerate((1, 2, 4, 6)):
        node = "network.learners_per_node=2" if name != "hogwild" and num_learners % 2 == 0 else "job.batch=1"
        of = scenario(
            num_learners, 60, f"job.seed={seed}", "job.num_epochs=2", "job.num_samples=173", "compute.spread=0.5",
            "compute.distribution=lognormal", node, "network.gbit_per_s=0.5", "network.host_gbyte_per_s=1",
            "network.mix_ms=2", "loading.ms=90", "loading.spread=0.3", "network.inner_gbit_per_s=1",
            "saving.every_steps=7", "saving.checkpoint_s=0.5", "slow.learners=0:10", "compute.update_ms=5",
            "saving.start_s=3", "saving.evaluation_s=2", f"distributed.h-adpsgd.outer={outer or 'adpsgd-random'}",
            f"distributed.ps-async.num_servers={min(2, num_learners)}",
        )  # fmt: skip
        same(run(of, name, num_learners), run(of, name, num_learners, []))


@pytest.mark.parametrize(("name", "loading"), [("allreduce", ("loading.ms=0.9", "loading.spread=0.5")), ("bmuf", ())])
def test_one_learner_alone_has_the_bits_of_rounds_that_are_logged(name: str, loading: tuple[str, ...]) -> None:
    of = scenario(
        1, 4200, "compute.distribution=lognormal", "compute.spread=0.5", "compute.ms=1", "compute.update_ms=0.1",
        "network.mix_ms=0.2", "saving.every_steps=70", "saving.checkpoint_s=0.3", "saving.start_s=5",
        "saving.evaluation_s=1", "saving.end_s=2", "job.num_epochs=2", "faults.lost=0:0.005", *loading,
    )  # fmt: skip
    same(run(of, name, 1), run(of, name, 1, []))


@pytest.mark.parametrize("name", ["allreduce", "adpsgd-random", "ps-async"])
def test_the_same_scenario_gives_the_same_twice_and_another_seed_something_else(name: str) -> None:
    drawn = ("compute.distribution=lognormal", "compute.spread=0.4", "slow.step_probability=0.1")
    one, again, other = ([], [], [])
    for seed, events in ((1, one), (1, again), (2, other)):
        run(scenario(4, 20, f"job.seed={seed}", *drawn), name, 4, events)
    assert one == again != other


def test_who_is_lost_leaves_its_batches_to_others_or_sets_all_back() -> None:
    lost = ("faults.lost=1:0.01", "faults.restart_s=10", "distributed.timeout_s=5", "saving.every_steps=100")
    of = scenario(4, 1000, *lost, *FREE)
    gossip, together = run(of, "adpsgd-random", 4), run(of, "allreduce", 4)
    assert gossip.num_repeated == 0
    assert gossip.steps[1] == pytest.approx(36 / STEP_S, abs=2)
    assert gossip.seconds == pytest.approx(36 + (4000 - 4 * 360) / 3 * STEP_S, rel=0.01)
    assert together.num_repeated == 4 * 60
    assert together.seconds == pytest.approx(1000 * STEP_S + 15 + 60 * STEP_S, rel=0.01)


def test_the_last_learner_trains_all_that_is_left() -> None:
    """All others may be lost before any loss is known."""
    lost = [f"{learner}:{0.001 * (learner + 1)}" for learner in range(4)]
    of = scenario(4, 100, f"faults.lost={json.dumps(lost)}", "distributed.timeout_s=20", *FREE)
    outcome = run(of, "adpsgd-random", 4)
    assert (outcome.num_losses, int(outcome.steps.sum())) == (3, outcome.num_batches)
    assert outcome.seconds > 300 * STEP_S


def test_a_training_that_always_falls_back_to_its_checkpoint_is_refused() -> None:
    with pytest.raises(AsrtoolError, match="allreduce lost a learner 1000 times in a row before the checkpoint"):
        run(scenario(4, 100, "faults.mtbf_h=1e-6", *FREE), "allreduce", 4)


def test_who_joins_trains_its_part() -> None:
    outcome = run(scenario(3, 1000, "faults.join_h=0.01", *FREE), "adpsgd-random", 3)
    assert outcome.num_joined == 1
    assert outcome.seconds == pytest.approx(36 + (3000 - 3 * 360) / 4 * STEP_S, rel=0.01)


def test_events_are_those_of_the_strategy() -> None:
    events: list[Event] = []
    run(scenario(4, 20, *FREE), "adpsgd-fixed", 4, events)
    assert {event.other - event.learner for event in events if kind_of(event) == "send"} == {1, -3}
    kinds = Counter(map(kind_of, events))
    assert {kinds[kind] for kind in ("send", "answer", "receive", "update", "take")} == {80}
    of_one = [kind_of(event) for event in events if getattr(event, "learner", None) == 0]
    assert [kind for kind in of_one if kind not in ("answer", "receive")] == [Begin, "update", "take", "send", End] * 20
    events.clear()
    run(scenario(3, 5), "allreduce", 3, events)
    assert [type(event) for event in events] == ([Begin] * 3 + [Round] + [End] * 3) * 5
    events.clear()
    run(scenario(3, 5, "distributed.ps-async.num_servers=2"), "ps-async", 3, events)
    assert Counter(event.other for event in events if kind_of(event) == "push") == {0: 15, 1: 15}


def test_draws_of_a_learner_do_not_depend_on_how_many_there_are() -> None:
    of = scenario(8, 10, "compute.distribution=lognormal", "compute.spread=0.4")
    few, many = (Cluster(of, number, False).compute_LK for number in (2, 8))
    np.testing.assert_array_equal(few, many[:2])


def test_a_slow_learner_stretches_its_wait_for_a_core_as_well() -> None:
    """Eight learners share two cores; with allreduce they come together, the slow one on average in the middle."""
    slow = scenario(8, 10, "compute.cpu_ms=10", "network.cores_per_node=2", "slow.learners=0:10")
    together_L = Cluster(slow, 8, True).compute_LK[:, 0]
    np.testing.assert_allclose(together_L[1:], 0.1 + 0.01 * 8 / 2 - 0.01)
    assert together_L[0] == pytest.approx(10 * (0.1 + (0.01 * 8 / 2 - 0.01) / 2))
    alone_L = Cluster(slow, 8, False).compute_LK[:, 0]
    assert alone_L[0] == pytest.approx(10 * alone_L[1])
    assert 0.1 < alone_L[1] < together_L[1]


LINKS = Links(Link(1e9, 1e-4), Link(4e9, 1e-5), 4)


def ring_by_parts(num_bytes: float, num_learners: int, link: Link) -> float:
    """Seconds until all have the sum: in each turn each sends a part to its neighbour, once it has that of before."""
    at = [0.0] * num_learners
    for _ in range(2 * (num_learners - 1)):
        at = [
            at[learner - 1] + link.latency_s + num_bytes / num_learners / link.bytes_per_s
            for learner in range(num_learners)
        ]
    return max(at)


@pytest.mark.parametrize("num_learners", [1, 2, 3, 4])
def test_a_ring_in_a_node_takes_the_turns_that_its_parts_take(num_learners: int) -> None:
    expected = ring_by_parts(8e6, num_learners, LINKS.inner)
    assert LINKS.ring_allreduce_s(8e6, num_learners, 1) == pytest.approx(expected, rel=1e-12)


def test_a_ring_of_nodes_of_one_learner_takes_the_turns_of_the_links_between_them() -> None:
    links = Links(LINKS.outer, LINKS.inner, 1)
    assert links.allreduce_s(8e6, 6) == pytest.approx(ring_by_parts(8e6, 6, LINKS.outer), rel=1e-12)


def test_a_ring_over_nodes_has_the_rate_of_its_slowest_link() -> None:
    seconds = LINKS.ring_allreduce_s(8e6, 8, 2)
    assert seconds == pytest.approx(2 * 7 / 8 * (8e6 / 1e9 + 2 * 1e-4 + 6 * 1e-5))


def test_sums_within_nodes_first_where_that_is_quicker() -> None:
    within, between = 2 * 3 / 4 * (8e6 / 4e9 + 4e-5), 2 * 1 / 2 * (2e6 / (1e9 / 4) + 2 * 1e-4)
    assert LINKS.allreduce_s(8e6, 8) == pytest.approx(within + between)
    assert LINKS.allreduce_s(8e6, 8) < LINKS.ring_allreduce_s(8e6, 8, 2)


def test_learners_share_what_all_messages_of_a_node_may_take() -> None:
    links = Links(LINKS.outer, LINKS.inner, 4, node_bytes_per_s=2e9)
    assert links.ring_allreduce_s(8e6, 4, 1) == pytest.approx(2 * 3 / 4 * (8e6 / 0.5e9 + 4e-5))


def test_cores_are_shared_by_those_that_step_together() -> None:
    assert shared_cpu_s(0.01, 0.1, 8, 2, together=True) == pytest.approx(0.04)
    assert shared_cpu_s(0.01, 0.1, 2, 2, together=False) == 0.01


@pytest.mark.parametrize(("num_cores", "factors"), [(1, [1, 2, 2]), (2, [1, 3, 3, 1.5])])
def test_cores_are_waited_for_as_in_the_machine_repairmans_queue(num_cores: int, factors: list[float]) -> None:
    """The balance of states, 0, 1, 2 .. learners that want a core, is solved by hand."""
    cpu, other, num = 0.05, 0.1, len(factors) - 1
    weights = [factor * (cpu / other) ** wanting for wanting, factor in enumerate(factors)]
    arrivals = sum((num - wanting) * weight for wanting, weight in enumerate(weights)) / other
    wanting = sum(wanting * weight for wanting, weight in enumerate(weights))
    assert shared_cpu_s(cpu, other, num, num_cores, together=False) == pytest.approx(wanting / arrivals)
