"""What each strategy copies between a GPU and the host and sends in a step, and that it computes the same there.

There is no GPU: memory of the host is taken for one, and copies are counted (tests/fake_gpu.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import equations
import numpy as np
import pytest
from learners import Learners

NUM_LEARNERS, NUM_STEPS = 4, 6
GRADIENT = 4 * equations.NUM_INPUTS * equations.NUM_OUTPUTS  # bytes
BUFFERS = 4 * 2 * 16  # running means and variances, each filled up to 64 bytes
ALL = 4 * 32 + BUFFERS  # of the flat weights

# Copied to the host, to the GPU; sent by collectives: gossip is a message of neighbours, in test_gossip.py
EXPECTED = {
    "allreduce": [(0, 0, GRADIENT * 6 // 4)] * NUM_STEPS,
    "adpsgd-fixed": [(ALL, ALL, 0)] * NUM_STEPS,
    "adpsgd-random": [(ALL, ALL, 0)] * NUM_STEPS,
    "adpsgd-d1": [(0, 0, ALL * 6 // 4)] * NUM_STEPS,
    "bmuf": [(0, 0, 0), (0, 0, 0), (0, 0, ALL * 6 // 4)] * (NUM_STEPS // 3),
    # within a pair: gradients and buffers are averaged, half of the weights is sent
    "h-adpsgd": [(ALL // 2, ALL // 2, GRADIENT + BUFFERS + ALL // 2)] * NUM_STEPS,
    # the mean of that half over the two pairs as well
    "h-adpsgd by adpsgd-d1": [(0, 0, GRADIENT + BUFFERS + ALL // 2 + ALL // 2)] * NUM_STEPS,
}


@pytest.fixture(scope="module")
def learners() -> Iterator[Learners]:
    started = Learners(NUM_LEARNERS)
    yield started
    started.close()


@pytest.mark.parametrize("name", EXPECTED)
def test_on_a_gpu_a_strategy_ends_in_the_bits_of_the_host_and_copies_no_more_than_it_has_to(
    learners: Learners, name: str
) -> None:
    on_host = learners.run(equations.train_counted, name, NUM_STEPS, False)
    on_gpu = learners.run(equations.train_counted, name, NUM_STEPS, True)
    for (here, counted_here), (there, counted_there) in zip(on_host, on_gpu, strict=True):
        np.testing.assert_array_equal(there, here)
        assert counted_there == EXPECTED[name]
        assert counted_here == [(0, 0, sent) for _, _, sent in EXPECTED[name]]
