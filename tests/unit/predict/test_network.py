"""Closed forms of messages, against a simulation of their parts one by one."""

from __future__ import annotations

import pytest

from asrtool.predict.simulate.cluster import Link, Links, shared_cpu_s

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
