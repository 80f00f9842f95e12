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
    Patch(
        "gap-costs-less",
        "asrtool/score/align.py",
        "_SINGLE = _Costs(*map(_Single, (0, 1, 2, 3, 4, 0.001)))",
        "_SINGLE = _Costs(*map(_Single, (0, 1, 2, 3, 4, 0.002)))",
        ("tests/unit/score/test_sctk.py",),
    ),
    Patch(
        "insertion-before-substitution",
        "asrtool/score/align.py",
        "            if move != INS:\n                a, _ =",
        "            if move == DEL:\n                a, _ =",
        ("tests/unit/score/test_align.py",),
    ),
    Patch(
        "segment-times-in-double-precision",
        "asrtool/score/hub5.py",
        'limit_s = struct.unpack("f", struct.pack("f", segment.end_s))[0]',
        "limit_s = segment.end_s",
        ("tests/unit/score/test_hub5.py",),
    ),
    Patch(
        "file-names-differ-by-case",
        "asrtool/score/hub5.py",
        "return lower(side.file), lower(side.channel)",
        "return side.file, lower(side.channel)",
        ("tests/unit/score/test_hub5.py",),
    ),
    Patch(
        "speakers-differ-by-case",
        "asrtool/score/hub5.py",
        "speaker = lower(segment.speaker)",
        "speaker = segment.speaker",
        ("tests/unit/score/test_score_output.py",),
    ),
    Patch(
        "titles-by-the-first-label-alone",
        "asrtool/score/tables.py",
        "if wanted.items() <= sizes.items()",
        'if wanted[""] == sizes[""]',
        ("tests/unit/score/test_score_output.py",),
    ),
    Patch(
        "confusions-by-name",
        "asrtool/score/tables.py",
        "key=lambda item: (-item[1], item[0])",
        "key=lambda item: item[0]",
        ("tests/unit/score/test_score_output.py",),
    ),
    Patch(
        "insertions-in-the-reference",
        "asrtool/score/result.py",
        "        return self.corr + self.sub + self.del_\n",
        "        return self.corr + self.sub + self.ins\n",
        ("tests/unit/score/test_align.py",),
    ),
    Patch(
        "labels-of-the-segments-alone",
        "asrtool/score/result.py",
        "return {label: sums.get(label, Counts()) for label in self.titles}",
        "return sums",
        ("tests/unit/score/test_score_output.py",),
    ),
    Patch(
        "interval-of-ninety-percent",
        "asrtool/score/significance.py",
        "[(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]",
        "[1 - CONFIDENCE, CONFIDENCE]",
        ("tests/unit/score/test_bootstrap.py",),
    ),
    Patch(
        "test-with-one-side",
        "asrtool/score/significance.py",
        "math.erfc(abs(z) / math.sqrt(2))",
        "math.erfc(abs(z) / math.sqrt(2)) / 2",
        ("tests/unit/score/test_compare.py",),
    ),
    Patch(
        "variance-of-all",
        "asrtool/score/significance.py",
        "squares / (num - 1)",
        "squares / num",
        ("tests/unit/score/test_compare.py",),
    ),
    Patch(
        "other-references-compared",
        "asrtool/score/significance.py",
        "        if one[:3] != other[:3]:",
        "        if one[:2] != other[:2]:",
        ("tests/unit/score/test_compare.py",),
    ),
    Patch(
        "trn-by-any-line",
        "asrtool/score/wer.py",
        "if 2 * sum(match is not None for _, _, match in spoken) > len(spoken):",
        "if any(match is not None for _, _, match in spoken):",
        ("tests/unit/score/test_score_wer.py",),
    ),
    Patch(
        "missing-in-the-reference-unnoticed",
        "asrtool/score/wer.py",
        "for one, other, path in ((references, hypotheses, hyp), (hypotheses, references, ref)):",
        "for one, other, path in ((references, hypotheses, hyp),):",
        ("tests/unit/score/test_score_wer.py",),
    ),
    Patch(
        "names-in-capitals-not-escaped",
        "asrtool/score/utterances.py",
        'rb"[^a-z0-9_.-]"',
        'rb"[^A-Za-z0-9_.-]"',
        ("tests/unit/score/test_hub5.py",),
    ),
    Patch(
        "labels-at-several-places",
        "asrtool/score/stm_ctm.py",
        "        if before != position:\n",
        "        if before > position:\n",
        ("tests/unit/score/test_score_readers.py",),
    ),
    Patch(
        "end-before-start",
        "asrtool/score/stm_ctm.py",
        "    if end_s < start_s:\n",
        "    if end_s < start_s - 1:\n",
        ("tests/unit/score/test_score_readers.py",),
    ),
)
