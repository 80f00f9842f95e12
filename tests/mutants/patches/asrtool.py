"""Slips in the modules of asrtool that are in no room."""

from . import Patch

PATCHES = (
    # Errors
    # Decoding
    Patch(
        "columns-built-by-two-at-once",
        "asrtool/files.py",
        "fcntl.flock(file, fcntl.LOCK_EX)",
        "fcntl.flock(file, fcntl.LOCK_SH)",
        ("tests/unit/train/batches/test_utterance_columns.py",),
    ),
    Patch(
        "bar-of-unlike-items-counts-them",
        "asrtool/log.py",
        "            shown.update(round(amount(done)) - shown.n)\n",
        "            shown.update(1)\n",
        ("tests/unit/test_log.py::test_the_bar_moves_by_the_amount",),
    ),
    Patch(
        "unlike-items-are-never-all",
        "asrtool/log.py",
        "    if amount and total is not None:\n",
        "    if not amount and total is not None:\n",
        ("tests/unit/test_log.py::test_items_that_are_unlike_count_by_their_amount",),
    ),
)
