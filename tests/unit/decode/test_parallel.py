"""The ordered map over processes."""

from __future__ import annotations

import os
import signal

import pytest

from asrtool.decode.parallel import UNDER_WAY, process_pool
from asrtool.errors import AsrtoolError


def test_results_come_in_order_and_from_other_processes() -> None:
    with process_pool(lambda item: (item * item, os.getpid()), 2) as pool_map:
        results = list(pool_map(range(50)))
    assert [square for square, _ in results] == [i * i for i in range(50)]
    assert os.getpid() not in {pid for _, pid in results}


def test_items_are_drawn_only_a_few_ahead_of_the_results() -> None:
    drawn: list[int] = []
    items = (drawn.append(i) or i for i in range(100))
    with process_pool(abs, 2) as pool_map:
        for count, _ in enumerate(pool_map(items), 1):
            assert len(drawn) <= count + 2 * UNDER_WAY
    assert len(drawn) == 100


def test_an_error_in_a_process_reaches_the_caller() -> None:
    def fail(item: int) -> int:
        raise AsrtoolError(f"item {item} is bad", "mend it")

    with pytest.raises(AsrtoolError, match="item 3 is bad; mend it"), process_pool(fail, 2) as pool_map:
        list(pool_map([3]))


def test_a_killed_process_is_one_line_and_no_hang() -> None:
    def die(_: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    killed = pytest.raises(AsrtoolError, match=r"search process was killed.*lower decode\.num_jobs")
    with killed, process_pool(die, 2) as pool_map:
        list(pool_map(range(4)))
