"""Intervals of scores, and their comparison: against exact enumeration, SCTK's sc_stats, and other references."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import subprocess
import tracemalloc
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from commands import run_command, usage_error
from hub5_cases import GLM, SCTK, Case, skip_without_sctk, write
from hypothesis import given
from hypothesis import strategies as st

from asrtool.errors import AsrtoolError
from asrtool.score import significance
from asrtool.score.hub5 import score_hub5
from asrtool.score.output import write_result
from asrtool.score.result import Alignment, Result, Segment
from asrtool.score.sctk import run_hubscr
from asrtool.score.significance import (
    compare_scores,
    count_stretches,
    draw_rates,
    mapsswe,
    wer_interval,
)
from asrtool.score.wer import score_wer

ONE = '{"id": "a", "speaker": "s", "reference": "x", "outcomes": "C"}'
HEADER = ';; LABEL "O" "Overall" "all"\n'


def outcomes(result: Result) -> list[str]:
    return ["".join(pair.kind for pair in segment.alignment.pairs) for segment in result.segments]


def worsen(ctm: str, rng: random.Random) -> str:
    lines = [line.split() for line in ctm.splitlines()]
    for fields in lines:
        if "<ALT" not in fields[4] and rng.random() < 0.15:
            fields[4] = rng.choice(["zz", fields[4] + "x"])
    return "".join(" ".join(fields) + "\n" for fields in lines)


def score_texts(folder: Path, name: str, ref: list[str], hyp: list[str]) -> Path:
    folder.mkdir(exist_ok=True)
    for file, texts in (("ref", ref), ("hyp", hyp)):
        (folder / file).write_text("".join(f"{text} (s{n % 4}-{n})\n" for n, text in enumerate(texts)))
    write_result(score_wer(folder / "ref", folder / "hyp"), folder / name, name)
    return folder / name


def test_the_p_value_is_that_of_both_sides_of_a_normal_distribution() -> None:
    test = mapsswe([("CSSCC", "CCCCC"), ("CSCCC", "CCCCC"), ("CCCCC", "CSCCC"), ("CDDDC", "CCCCC")])
    differences = [2, 1, -1, 3]
    z = np.mean(differences) / (np.std(differences, ddof=1) / 2)
    assert (test.num_stretches, test.z) == (4, pytest.approx(z))
    assert test.p_value == pytest.approx(2 * (1 - NormalDist().cdf(z)))


@pytest.mark.parametrize("seed", range(4))
def test_matched_pairs_are_those_of_sc_stats(seed: int, tmp_path: Path) -> None:
    skip_without_sctk()
    case = Case(seed, num_files=8)
    page, results = "", []
    for name, ctm in (("a", case.ctm), ("b", worsen(case.ctm, random.Random(seed)))):
        write(tmp_path / name, case.stm, ctm, GLM)
        run_hubscr(tmp_path / name, *(tmp_path / name / file for file in ("r.stm", "h.ctm", "g.glm")))
        page += (tmp_path / name / "h.ctm.filt.sgml").read_text(encoding="utf-8")
        results.append(score_hub5(*(tmp_path / name / file for file in ("r.stm", "h.ctm", "g.glm"))))
    command = [SCTK / "sc_stats", "-p", "-t", "mapsswe", "-v", "-n", "x"]
    env = {**os.environ, "LC_ALL": "C"}
    subprocess.run(command, input=page, text=True, check=True, capture_output=True, cwd=tmp_path, env=env)
    report = (tmp_path / "x.stats.mapsswe").read_text(encoding="utf-8")
    row = re.search(r"segs: (\d+)\).*mean: +(\S+)\) \(std dev: +(\S+)\) \(Z Stat: +(\S+)\)", report)
    assert row
    test = mapsswe(zip(*map(outcomes, results), strict=True))
    assert test.num_stretches > 20
    assert list(row.groups()) == [str(test.num_stretches), *(f"{x:.3f}" for x in (test.mean, test.std_dev, test.z))]


@pytest.mark.parametrize(
    ("one", "two", "stretches"),
    [
        ("CCCC", "CCCC", []),
        ("CSCC", "CCCC", [(1, 0)]),
        ("SCSCC", "CCCDC", [(2, 1)]),  # one correct word between does not part them
        ("SCCSC", "CCCCC", [(1, 0), (1, 0)]),
        ("CICC", "CCC", [(1, 0)]),
        ("CCC", "CCCI", [(0, 1)]),
        ("", "I", [(0, 1)]),
    ],
)
def test_two_words_correct_in_both_part_stretches(one: str, two: str, stretches: list[tuple[int, int]]) -> None:
    assert count_stretches(one, two) == stretches


@given(st.lists(st.tuples(*[st.text("CSD", min_size=3, max_size=3)] * 2, st.text("I", max_size=2)), max_size=6))
def test_no_error_is_lost_between_stretches(parts: list[tuple[str, str, str]]) -> None:
    one, two = "".join(part[0] for part in parts), "".join(part[1] + part[2] for part in parts)
    stretches = count_stretches(one, two)
    assert [sum(side) for side in zip(*stretches, strict=True)] in ([], [len(x) - x.count("C") for x in (one, two)])
    assert count_stretches(two, one) == [(b, a) for a, b in stretches]


def test_samples_of_many_units_are_drawn_in_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    errors, words = rng.integers(0, 9, (2, 2000)), np.tile(rng.integers(1, 30, 2000), (2, 1))
    tracemalloc.start()
    drawn = draw_rates(errors, words, seed=3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6  # a count for each unit and sample would take 160 MB
    monkeypatch.setattr(significance, "MAX_DRAWS", 1 << 30)
    assert np.array_equal(draw_rates(errors, words, seed=3), drawn)


@pytest.mark.parametrize(
    ("differences", "expected"),
    [([1] * 48 + [2], "-"), ([1] * 49 + [2], "< 0.001"), ([1, -1] * 29 + [1, 1], "0.8")],
)
def test_a_p_value_is_told_as_far_as_it_can_be_trusted(differences: list[int], expected: str) -> None:
    found = mapsswe(("S" * max(one, 0) + "C", "S" * max(-one, 0) + "C") for one in differences)
    assert found.num_stretches == len(differences)
    assert found.p_text == expected


def test_compare_prints_rates_interval_and_test(tmp_path: Path) -> None:
    rng = random.Random(2)
    ref = [" ".join(rng.choices("abcde", k=8)) for _ in range(80)]
    good, bad = ([" ".join("x" if rng.random() < p else w for w in t.split()) for t in ref] for p in (0.05, 0.2))
    a, b = score_texts(tmp_path / "1", "a", ref, bad), score_texts(tmp_path / "2", "b", ref, good)
    found = json.loads(run_command("compare", a, b / "score.json", "--json").output)
    rates = [100 * sum(text.count("x") for text in texts) / 640 for texts in (bad, good)]
    assert [found["wer_a"], found["wer_b"], found["difference"]] == pytest.approx([*rates, rates[0] - rates[1]])
    assert found["num_units"] == 4
    low, high = found["interval"]
    assert 0 < low < found["difference"] < high
    assert found["mapsswe"]["p_value"] < 0.01 < found["fraction_b_better"]
    again = compare_scores(b, a)
    assert again.difference == pytest.approx(-found["difference"])
    assert again.interval == pytest.approx((-high, -low))
    text = run_command("compare", a, b).output
    assert f"A - B {found['difference']:+.2f} points" in text
    assert "by bootstrap over speakers" in text


def test_a_negative_seed_is_refused(tmp_path: Path) -> None:
    score = score_texts(tmp_path, "a", ["a b c"], ["a x c"])
    assert "'--seed': -1 is not in the range" in usage_error("compare", score, score, "--seed", "-1")


def test_a_score_against_itself_does_not_differ(tmp_path: Path) -> None:
    score = score_texts(tmp_path, "a", ["a b c", "d e f"] * 5, ["a x c", "d e f"] * 5)
    comparison = compare_scores(score, score)
    assert (comparison.difference, comparison.interval, comparison.mapsswe.z) == (0, (0, 0), 0)


def test_scores_of_other_references_are_refused(tmp_path: Path) -> None:
    a = score_texts(tmp_path / "1", "a", ["a b", "c d"], ["a b", "c d"])
    b = score_texts(tmp_path / "2", "b", ["a b", "c e"], ["a b", "c e"])
    with pytest.raises(AsrtoolError, match=r"different references, the first difference is segment s1-1 \('c d' and"):
        compare_scores(a, b)
    c = score_texts(tmp_path / "3", "c", ["a b"], ["a b"])
    with pytest.raises(AsrtoolError, match="different references, 2 and 1 segments; compare scores of one test set"):
        compare_scores(a, c)


def test_alternatives_that_were_taken_differently_are_the_same_reference(tmp_path: Path) -> None:
    stm = f"{HEADER}f A s1 0 9 <O> {{ a b / c }} d\nf B s2 0 9 <O> e\n"
    for name, ctm in (("a", "f A 1 1 a\nf A 2 1 b\nf A 3 1 d\n"), ("b", "f A 1 1 c\nf A 3 1 d\n")):
        write(tmp_path, stm, ctm, GLM)
        write_result(score_hub5(tmp_path / "r.stm", tmp_path / "h.ctm"), tmp_path / name, name)
    assert compare_scores(tmp_path / "a", tmp_path / "b").num_segments == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "segments.jsonl:1: malformed segment; expected a JSON object with id, speaker, reference, outcomes"),
        ('{"id": "a"}', "segments.jsonl:1: malformed segment; expected a JSON object with"),
        ('{"id": "a", "speaker": "s", "reference": "x", "outcomes": "CX"}', "segments.jsonl:1: outcomes 'CX'"),
        (100_000 * "[", "segments.jsonl:1: malformed segment"),
        (r'{"id": "\ud800", "speaker": "s", "reference": "x", "outcomes": "C"}', "segments.jsonl:1: malformed segment"),
        ('{"id": "a", "speaker": "s", "reference": "x", "outcomes": 3}', "segments.jsonl:1: malformed segment"),
        ('{"id": "a", "speaker": "s", "reference": "", "outcomes": "I"}', "no reference words"),
        (f'{ONE[:-1]}, "ref": ["x", "y"]}}', "segments.jsonl:1: malformed segment"),
        (f'{ONE[:-1]}, "hyp": [1]}}', "segments.jsonl:1: malformed segment"),
        (f'{ONE[:-1]}, "labels": 3}}', "segments.jsonl:1: malformed segment"),
        (f'{ONE[:-1]}, "end_s": "1"}}', "segments.jsonl:1: malformed segment"),
    ],
)
def test_a_malformed_score_is_named_by_line(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "segments.jsonl").write_text(line + "\n")
    with pytest.raises(AsrtoolError) as error:
        compare_scores(tmp_path, tmp_path)
    assert message in str(error.value)


def test_a_folder_without_score_is_named(tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"segments\.jsonl is missing; name a folder that asrtool score wrote"):
        compare_scores(tmp_path, tmp_path)


# Intervals of word error rates


def segments(outcomes: list[str], speakers: str) -> list[Segment]:
    return [
        Segment(f"u{n}", speaker, (), "", Alignment(text))
        for n, (text, speaker) in enumerate(zip(outcomes, speakers, strict=True))
    ]


def test_the_interval_is_that_of_all_draws_of_speakers_with_replacement() -> None:
    found = wer_interval(segments(["CCCC", "CSCI", "SSCCC", "CCCCCCDC"], "aabc"))
    assert found is not None
    errors, words = np.array([2, 2, 1]), np.array([7, 5, 8])
    exact = [100 * errors[list(d)].sum() / words[list(d)].sum() for d in itertools.product(range(3), repeat=3)]
    assert (found.unit, found.num_units) == ("speaker", 3)
    assert found[:2] == pytest.approx(np.quantile(exact, [0.025, 0.975], method="inverted_cdf"))


def test_segments_are_drawn_of_one_speaker() -> None:
    found = wer_interval(segments(["CCCC", "CSCI", "SSCCC"], "aaa"))
    assert found is not None
    assert (found.unit, found.num_units) == ("segment", 3)


def test_speakers_who_are_alike_leave_nothing_to_chance() -> None:
    found = wer_interval(segments(["CCCS"] * 6, "abcabc"))
    assert found is not None
    assert found[:2] == (25.0, 25.0)


def test_without_reference_words_there_is_no_interval() -> None:
    assert wer_interval(segments(["", "II"], "ab")) is None
    some = wer_interval(segments(["", "II", "CS"], "abc"))  # samples without words are left out
    assert some is not None
    assert some[:2] == (50.0, 250.0)
