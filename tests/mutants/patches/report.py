"""Slips in asrtool/report."""

from . import Patch

PATCHES = (
    Patch(
        "dense-text-is-sparse",
        "asrtool/report/data_findings.py",
        "if rate > middle + limit",
        "if rate > middle + 3 * limit",
        ("tests/unit/report/test_data_check.py",),
    ),
    # Decoding
    Patch(
        "overfitting-by-one-evaluation",
        "asrtool/report/overfitting.py",
        "if last - best < PATIENCE or",
        "if last - best < 1 or",
        ("tests/unit/report/test_overfitting.py",),
    ),
)
