"""Slips in the modules of asrtool that are in no room."""

from . import Patch

PATCHES = (
    # Decoding
    Patch(
        "own-class-without-its-base",
        "asrtool/registry.py",
        "fits = not base or",
        "fits = True or",
        ("tests/unit/test_registry.py",),
    ),
    Patch(
        "columns-built-by-two-at-once",
        "asrtool/files.py",
        "fcntl.flock(file, fcntl.LOCK_EX)",
        "fcntl.flock(file, fcntl.LOCK_SH)",
        ("tests/unit/train/test_columns.py",),
    ),
)
