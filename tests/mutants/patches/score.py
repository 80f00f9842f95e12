"""Slips in asrtool/score."""

from . import Patch

GLM = "asrtool/score/glm.py"
FILTER = "asrtool/score/filter.py"
TEST_HUB5 = "tests/unit/score/test_hub5.py"

PATCHES = (
    # Scoring
    Patch(
        "substitution-costs-a-gap",
        "asrtool/score/align.py",
        "_EXACT = _Costs(0, 1, 2, 3, 4, 0)",
        "_EXACT = _Costs(0, 1, 2, 3, 3, 0)",
        ("tests/unit/score/test_align.py",),
    ),
    Patch("rule-behind-another-not-applied", GLM, "if start >= done:", "if start > done:", (TEST_HUB5,)),
    Patch(
        "last-rule-wins",
        GLM,
        "fitting.setdefault(position + len(rule.left), rule)",
        "fitting[position + len(rule.left)] = rule",
        (TEST_HUB5,),
    ),
    Patch("hyphens-not-split", FILTER, '_HYPHEN.sub(r"\\1 ", text)', "text", (TEST_HUB5,)),
    Patch(
        "segments-drawn-of-several-speakers",
        "asrtool/score/significance.py",
        'return "speaker" if len({segment.speaker for segment in segments}) > 1',
        'return "speaker" if len({segment.speaker for segment in segments}) > 3',
        ("tests/unit/score/test_bootstrap.py",),
    ),
    Patch(
        "characters-of-words-that-may-be-missed",
        "asrtool/score/result.py",
        "            if said and heard:\n",
        "            if said or heard:\n",
        ("tests/unit/score/test_characters.py",),
    ),
    Patch(
        "distance-without-falls",
        "asrtool/score/result.py",
        "distance += bool(down & last) - bool(up & last)",
        "distance += bool(down & last)",
        ("tests/unit/score/test_characters.py",),
    ),
)
