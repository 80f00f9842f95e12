"""The environment variables of a learner."""

from __future__ import annotations

import pytest

from asrtool.distributed.launch.environment import check_environment
from asrtool.errors import AsrtoolError

GOOD = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("WORLD_SIZE", "", "WORLD_SIZE is '' in the environment of a learner, expected 1 to"),
        ("WORLD_SIZE", "0", "WORLD_SIZE is '0'"),
        ("RANK", "one", "RANK is 'one' in the environment of a learner, expected 0 to 1; start learners with torchrun"),
        ("RANK", "2", "RANK is '2'"),  # it would wait for ever
        ("RANK", "-1", "RANK is '-1'"),
        ("MASTER_PORT", "", "MASTER_PORT is ''"),
        ("MASTER_PORT", "65536", "MASTER_PORT is '65536' in the environment of a learner, expected 1 to 65535"),
    ],
)
def test_a_value_that_cannot_be_is_named(name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for known, good in GOOD.items():
        monkeypatch.setenv(known, good)
    check_environment(0)
    monkeypatch.setenv(name, value)
    with pytest.raises(AsrtoolError) as error:
        check_environment(0)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("names", [("RANK", "WORLD_SIZE"), tuple(GOOD)])
def test_learners_that_the_user_asks_for_beside_others_of_the_environment_are_refused(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torchrun or a container leaves them: else one learner would train in silence."""
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    for name in names:
        monkeypatch.setenv(name, GOOD[name])
    check_environment(2)
    with pytest.raises(AsrtoolError) as error:
        check_environment(3)
    assert str(error.value).startswith(
        "distributed.num_learners (--num-learners) is 3, but RANK=1 and WORLD_SIZE=2 in the environment make this "
        "process learner 1 of 2; unset RANK and WORLD_SIZE"
    )
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    check_environment(3)
