"""Slips of tests/mutants can still be made: their files have their texts exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutants.patches import BY_ROOM, PATCHES, Patch

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("room", BY_ROOM)
def test_patches_still_apply_and_leave_python(room: str) -> None:
    for patch in BY_ROOM[room]:
        before = (ROOT / patch.file).read_text(encoding="utf-8")
        after = patch.apply(before)
        assert after != before
        compile(after, patch.name, "exec")


def test_no_two_patches_have_one_name() -> None:
    assert len({patch.name for patch in PATCHES}) == len(PATCHES)


def test_a_patch_is_in_the_file_of_its_room() -> None:
    """`asrtool.py` has those of modules in no room."""
    for room, patches in BY_ROOM.items():
        for patch in patches:
            top, *folders, _ = Path(patch.file).parts
            assert room == (folders[0] if top == "asrtool" and folders else top)


@pytest.mark.parametrize(("text", "num"), [("", 0), ("a b a", 2)])
def test_a_text_that_is_not_there_once_is_an_error_that_names_the_patch(text: str, num: int) -> None:
    with pytest.raises(ValueError, match=f"frozen: ring.py has {num} times, not once: 'a'"):
        Patch("frozen", "ring.py", "a", "c", ()).apply(text)
