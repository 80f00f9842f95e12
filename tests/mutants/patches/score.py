"""Slips in asrtool/score."""

from . import Patch

GLM = "asrtool/score/glm.py"
FILTER = "asrtool/score/filter.py"
TEST_HUB5 = "tests/unit/score/test_hub5.py"
ALIGN = "asrtool/score/align.py"
HUB5 = "asrtool/score/hub5.py"
NETWORK = "asrtool/score/network.py"
TEST_ALIGN = "tests/unit/score/test_align.py"
TEST_SCTK = "tests/unit/score/test_sctk.py"

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
    Patch(
        "word-in-the-segment-of-its-start",
        FILTER,
        "(text, word.start_s + word.duration_s / 2)",
        "(text, word.start_s)",
        (TEST_HUB5,),
    ),
    Patch(
        "rules-of-the-hypothesis-for-both",
        GLM,
        'REFERENCE = ("stm", "ref")',
        'REFERENCE = ("stm", "ref", "ctm")',
        (TEST_HUB5,),
    ),
    Patch("optional-word-deleted", ALIGN, '"C" if ref.optional else "D"', '"D"', (TEST_ALIGN,)),
    Patch(
        "fragment-that-is-the-whole-word",
        NETWORK,
        "return other.startswith(one[:-1])",
        "return other == one[:-1]",
        (TEST_ALIGN,),
    ),
    Patch("late-words-lost", HUB5, "if number < len(segments):", "if True:", (TEST_HUB5,)),
    Patch("ignored-segments-scored", HUB5, "if not is_ignored(text):", "if True:", (TEST_HUB5,)),
    Patch(
        "ties-in-double-precision",
        ALIGN,
        "_SINGLE = _Costs(*map(_Single,",
        "_SINGLE = _Costs(*map(float,",
        (TEST_SCTK,),
    ),
    Patch("block-of-alternatives-torn", HUB5, "            filtered = _hold_blocks(filtered)\n", "", (TEST_SCTK,)),
    Patch(
        "optional-group-of-two-words-alone",
        FILTER,
        "while _OPTIONAL_TAIL.search(text):",
        "if _OPTIONAL_TAIL.search(text):",
        (TEST_SCTK,),
    ),
    Patch(
        "one-correct-word-ends-a-stretch",
        "asrtool/score/significance.py",
        "NUM_GOOD = 2 ",
        "NUM_GOOD = 1 ",
        ("tests/unit/score/test_compare.py",),
    ),
    Patch(
        "labels-not-compared-with-sctk",
        "asrtool/score/sctk.py",
        '    _compare("label", found, {label: total(counts) for label, counts in labels.items()})\n',
        "",
        ("tests/unit/score/test_check_sctk.py",),
    ),
    Patch(
        "ids-that-do-not-look-like-ids-not-matched",
        "asrtool/score/wer.py",
        "if by_word[0].keys() == by_word[1].keys() and",
        "if False and",
        ("tests/unit/score/test_score_wer.py",),
    ),
)
