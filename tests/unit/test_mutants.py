"""Mutants of tests/mutants can still be made: their files have their texts exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutants.mutants import BY_ROOM, MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("room", BY_ROOM)
def test_mutants_still_apply_and_leave_python(room: str) -> None:
    for mutant in BY_ROOM[room]:
        before = (ROOT / mutant.file).read_text(encoding="utf-8")
        after = mutant.apply(before)
        assert after != before
        compile(after, mutant.name, "exec")


def test_no_two_mutants_have_one_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_a_mutant_is_in_the_file_of_its_room() -> None:
    """`asrtool.txt` has those of modules in no room."""
    for room, mutants in BY_ROOM.items():
        for mutant in mutants:
            top, *folders, _ = Path(mutant.file).parts
            assert room == (folders[0] if top == "asrtool" and folders else top)


@pytest.mark.parametrize(("text", "num"), [("", 0), ("a b a", 2)])
def test_a_text_that_is_not_there_once_is_an_error_that_names_the_mutant(text: str, num: int) -> None:
    with pytest.raises(ValueError, match=f"frozen: ring.py has {num} times, not once: 'a'"):
        Mutant("frozen", "ring.py", "a", "c", ()).apply(text)
