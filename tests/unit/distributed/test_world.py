"""The rendezvous and the addresses of learners."""

from __future__ import annotations

import pytest

from asrtool.distributed import world
from asrtool.distributed.world import World, address_towards, own_address


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
