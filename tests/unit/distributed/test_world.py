"""The rendezvous and the addresses of learners."""

from __future__ import annotations

from datetime import timedelta

import pytest
from torch.distributed import HashStore

from asrtool.distributed import world
from asrtool.distributed.world import World, address_towards, join_learners, own_address
from asrtool.errors import AsrtoolError


class Gathering(World):
    """A learner of several, whose first guesses of their addresses are `guesses`."""

    guesses: tuple[str, ...] = ()

    def gather(self, value: object) -> list[object]:
        return [value, *self.guesses]


@pytest.mark.parametrize(
    ("first", "guesses", "expected"),
    [
        ("127.0.0.1", (), "127.0.0.1"),
        ("127.0.0.1", ("127.0.0.1",), "127.0.0.1"),
        ("127.0.1.1", ("127.0.1.1", "10.0.0.2", "10.0.0.3"), "towards 10.0.0.2"),
        ("10.0.0.1", ("127.0.1.1", "10.0.0.2"), "10.0.0.1"),
    ],
)
def test_a_machine_that_knows_itself_by_a_loopback_address_takes_that_towards_another(
    first: str, guesses: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER_ADDR", "node0")
    monkeypatch.setattr(world, "address_towards", lambda host: first if host == "node0" else f"towards {host}")
    learner = Gathering()
    learner.guesses = guesses
    assert own_address(learner) == expected


def test_the_address_towards_this_machine_is_its_loopback_address() -> None:
    assert address_towards("127.0.0.1") == "127.0.0.1"
    assert address_towards("no such host.invalid") == "127.0.0.1"


def test_the_rendezvous_times_out_and_names_the_missing_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where learners were killed on other machines before they joined."""
    monkeypatch.setattr(world, "RENDEZVOUS_TIMEOUT", timedelta(seconds=1))
    monkeypatch.setattr(world, "rendezvous", lambda _: iter([(HashStore(), 1, 3)]))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("MASTER_ADDR", "node7")
    with pytest.raises(AsrtoolError, match=r"rendezvous timed out after 1 s: rank 0, 2 of 3 missing; see"):
        join_learners()
