"""Slips in asrtool/report."""

from . import Patch

PATCHES = (
    # Decoding
    Patch(
        "overfitting-by-one-evaluation",
        "asrtool/report/overfitting.py",
        "if last - best < PATIENCE or",
        "if last - best < 1 or",
        ("tests/unit/report/test_overfitting.py",),
    ),
)
