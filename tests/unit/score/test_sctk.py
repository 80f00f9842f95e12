"""Counts equal to SCTK, segment by segment: NIST's own example and random test sets."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
from commands import run_command
from hub5_cases import GLM, SCTK, SPECIAL, Case, skip_without_sctk, write

from asrtool.data.manifests.sets import EvaluationSet, Sets, write_sets
from asrtool.errors import AsrtoolError
from asrtool.score import sctk
from asrtool.score.filter import CtmFilter, filter_segment
from asrtool.score.glm import HYPOTHESIS, REFERENCE, read_glm
from asrtool.score.hub5 import score_hub5
from asrtool.score.result import Alignment, Result
from asrtool.score.sctk import check_sctk
from asrtool.score.stm_ctm import read_ctm, read_stm


def compare(folder: Path, stm: str, ctm: str, glm: str = GLM) -> dict[str, tuple[int, ...]]:
    """Correct, substituted, deleted and inserted words of each segment, by us and by SCTK."""
    skip_without_sctk()
    write(folder, stm, ctm, glm)
    files = folder / "r.stm", folder / "h.ctm", folder / "g.glm"
    result = score_hub5(*files)
    check_sctk(result, *files)
    return {segment.id: segment.alignment.counts[1:] for segment in result.segments}


@pytest.mark.parametrize("seed", range(10))
def test_random_test_sets_score_as_with_hubscr(seed: int, tmp_path: Path) -> None:
    case = Case(seed)
    assert len(compare(tmp_path, case.stm, case.ctm)) > 50


@pytest.mark.parametrize("seed", range(3))
def test_random_words_of_a_real_glm_score_as_with_hubscr(seed: int, tmp_path: Path, shared: Path) -> None:
    glm = (shared / "data/sctk/en20030506.glm").read_text()
    words = {word for line in glm.splitlines() if "=>" in line for word in re.findall(r"[A-Z'.%-]+", line)}
    case = Case(seed, special=[*sorted(words), *SPECIAL])
    assert len(compare(tmp_path, case.stm, case.ctm, glm)) > 50


@pytest.mark.parametrize("seed", range(3))
def test_many_empty_alternatives_tie_as_in_single_precision(seed: int, tmp_path: Path) -> None:
    case = Case(seed, num_files=6, special=["nully", "deep", "refonly", "@", "we'd", "can't"])
    case.stm = re.sub(r"\b(a|b|the|is)\b(?=[^()]*$)", "{ a / @ }", case.stm, flags=re.MULTILINE)
    compare(tmp_path, case.stm, case.ctm)


def test_odd_orders_and_spellings_score_as_with_hubscr(tmp_path: Path) -> None:
    stm = (
        ';; LABEL "O" "Overall" "all"\n'
        "f2 A s 5 6 <O> late\nf2 A s 0 5 <O> two words\nF1 A S1 0 1 <o>  upper file\n\n;; comment\n"
        "f1\tB\ts3  0.0 1.5\tno labels here\nf1 A s2 0 1 <O>\nf1 A s2 1 2 <O> (uh huh) well- known  { x / y z / @ }\n"
    )
    ctm = (
        ";; comment\nf1 A 1.2 0.1 WELL\nf1 A 1.0 0.1 y 0.9\nF1 A 0 1 upper\n\nf1\tB 0 1 no\nf1\tB 9 1 hear -0.5\n"
        "f2 A 4.9 0.2 two\nf2 A 4.8 .2 late\nf1 A 0 0.01 extra\n"
    )
    compare(tmp_path, stm, ctm)


@pytest.mark.parametrize(
    "text",
    [
        "{ a / b }y b",
        "{ a / b }, b",
        "{ a / b }(y) b",
        "{a/b}{c/d} b",
        "{ { a / b }c / d } e",
        "{ a / b };t b",
        "{a / b}/",
    ],
)
def test_what_follows_alternatives_without_a_space_is_a_word(text: str, tmp_path: Path) -> None:
    compare(tmp_path, f"f A s 0 1 {text}\n", "f A 0.1 .1 a\nf A .3 .1 y\nf A .5 .1 b\n")


def test_blocks_of_alternatives_of_two_channels_may_be_interleaved(tmp_path: Path) -> None:
    words = [("0 0", "<ALT_BEGIN>"), ("0 1", "a"), ("0 0", "<ALT>"), ("0 1", "b"), ("0 0", "<ALT_END>")]
    ctm = "".join(f"{file} A {times} {word}\n" for times, word in words for file in ("f", "g"))
    expected = compare(tmp_path, "f A s 0 2 a b\ng A t 2 9 c a\n", ctm)
    assert expected == {"s-000": (1, 0, 1, 0), "t-000": (1, 0, 1, 0)}


def test_a_block_of_alternatives_before_the_start_of_the_file_falls_into_the_segment_that_ends_behind_it(
    tmp_path: Path,
) -> None:
    stm = "".join(f"f A s{end} {end - 1} {end} a\n" for end in range(-2, 3))
    marked = "".join(f"f A -2.5 0.1 {word}\n" for word in ("<ALT_BEGIN>", "a", "<ALT>", "b", "<ALT_END>"))
    for ctm in ("f A -2.5 0.5 a/b 0.9\n", marked):
        assert compare(tmp_path, stm, ctm)["s1-000"] == (1, 0, 0, 0)


@pytest.mark.parametrize(
    "glm",
    [
        "* name 'the first word of a file begins a comment'\n* case_sensitive = 'F'\na => the\nB => C\n",
        ";; rules\n[A] => [TH-\tC]\n",
        ";; rules\n[A] => [(B\tC)]\n",
        f";; rules{'x' * 122}\nA => {'X' * 126}\n",
        f";; rules{' ' * 999}\nA => B{' ' * 200}\n",
    ],
)
def test_odd_lines_of_rules_apply_as_with_hubscr(glm: str, tmp_path: Path) -> None:
    compare(tmp_path, "f A s 0 1 a b (a) c\n", "f A 0.1 .1 the\nf A .3 .1 c\nf A .5 .1 b\n", glm)


def test_a_last_line_without_line_feed_is_read_where_sorting_leaves_it_last(tmp_path: Path) -> None:
    stm, ctm = "f A s 0 1 a\nf A s 1 2 b", "f A 0 1 a\nf A 1 1 b"
    compare(tmp_path, stm, ctm)
    compare(tmp_path, f"{stm}\n  ", "f A 1 1 b\nf A 0 1 a\n;; end")


def test_a_channel_and_a_file_without_words_are_deleted(tmp_path: Path) -> None:
    stm = ';; LABEL "O" "Overall" "all"\n' + "".join(
        f"{file} {channel} {file}{channel} 0 9 <O> some words\n" for file in ("f1", "f2", "f3") for channel in "AB"
    )
    expected = compare(tmp_path, stm, "f1 B 0 1 some\nf3 A 0 1 words\nf3 B 1 1 words\n")
    assert expected["f2a-000"] == (0, 0, 2, 0)


def test_the_example_of_nist_has_the_published_counts(shared: Path) -> None:
    data = shared / "data/sctk"
    result = score_hub5(data / "lvc_refe.stm", data / "lvc_hyp.ctm", data / "example.glm")
    table = (data / "expected/lvc_hyp.ctm.filt.raw").read_text()
    rows = re.findall(r"\| (\S+) +\| +(\d+) +(\d+) \| +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) ", table)
    published = {name: [int(cell) for cell in cells] for name, *cells in rows}
    found = {name: list(part.overall.to_dict().values()) for name, part in result.speakers.items()}
    assert {**found, "Sum": list(result.overall.to_dict().values())} == published
    rates = {name: part.overall.wer for name, part in result.labels.items()}
    assert {name: f"{rate:.1f}" for name, rate in rates.items()} == {"O": "52.7", "WA": "49.5", "NA": "60.9"}


def test_the_example_of_nist_is_filtered_as_published(shared: Path) -> None:
    data = shared / "data/sctk"
    segments, ctm = read_stm(data / "lvc_refe.stm"), read_ctm(data / "lvc_hyp.ctm")
    rules, hyp_rules = (read_glm(data / "example.glm", inputs) for inputs in (REFERENCE, HYPOTHESIS))
    filtered = [filter_segment(segment, rules).split() for segment in segments]
    lines = [line for line in (data / "expected/lvc_refe.stm.filt").read_text().splitlines() if line[:2] != ";;"]
    assert sorted(filtered) == sorted([word for word in line.lower().split()[5:] if word[0] != "<"] for line in lines)
    heard = CtmFilter(ctm.path, hyp_rules)
    words = [text for side in ctm.sides.values() for text, _ in heard.apply(side)]
    rows = (data / "expected/lvc_hyp.ctm.filt").read_text().lower().splitlines()
    assert sorted(words) == sorted(row.split()[4] for row in rows if row[:2] != ";;")


def test_the_example_of_nist_scores_as_with_hubscr_by_rules_of_another_year(shared: Path, tmp_path: Path) -> None:
    data = shared / "data/sctk"
    texts = [(data / name).read_text() for name in ("lvc_refe.stm", "lvc_hyp.ctm", "en20030506.glm")]
    assert len(compare(tmp_path, *texts)) > 20


# --check-sctk: silent where SCTK counts the same, one line that names the first difference where not

needs_sctk = pytest.mark.skipif(not (SCTK / "hubscr.pl").exists(), reason=f"no SCTK in {SCTK} (Debian package sctk)")


def make_files(folder: Path) -> tuple[Path, Path, Path]:
    case = Case(4, num_files=4)
    write(folder, case.stm, case.ctm, GLM)
    return folder / "r.stm", folder / "h.ctm", folder / "g.glm"


@needs_sctk
def test_equal_counts_pass(tmp_path: Path) -> None:
    ref, hyp, glm = make_files(tmp_path)
    words = ["--ref", ref, "--hyp", hyp, "--glm", glm, "--out", tmp_path / "out", "--check-sctk"]
    run_command("score", "hub5", *words)
    assert (tmp_path / "out/score.json").exists()
    check_sctk(score_hub5(ref, hyp), ref, hyp, None)


@needs_sctk
def test_every_set_and_method_is_checked(tmp_path: Path) -> None:
    for name in ("dev", "test"):
        ref, hyp, glm = make_files(tmp_path / name)
        for path, new in ((ref, "ref.stm"), (hyp, "greedy.ctm"), (glm, "ref.glm")):
            path.rename(path.with_name(new))
    write_sets(tmp_path, Sets((EvaluationSet("test"),)))
    done = run_command("score", "all", tmp_path, tmp_path, tmp_path / "out", "--check-sctk")
    assert done.output.count("Overall") == 2


@needs_sctk
def test_the_first_difference_is_named(tmp_path: Path) -> None:
    files = make_files(tmp_path)
    result = score_hub5(*files)
    first = result.segments[3]
    wrong = first._replace(alignment=Alignment(*zip(*first.alignment.pairs, ("I", "", "more"), strict=True)))
    changed = Result((*result.segments[:3], wrong, *result.segments[4:]), result.titles)
    with pytest.raises(AsrtoolError) as error:
        check_sctk(changed, *files)
    counts = first.alignment.counts
    assert f"segment {first.id}: segments 1, corr {counts.corr}," in str(error.value)
    assert f"ins {counts.ins + 1}, err {counts.err + 1} here," in str(error.value)
    assert f"ins {counts.ins}, err {counts.err} by SCTK; report this with both files" in str(error.value)


@needs_sctk
def test_segments_that_sctk_has_and_labels_that_differ_are_named(tmp_path: Path) -> None:
    files = make_files(tmp_path)
    result = score_hub5(*files)
    with pytest.raises(AsrtoolError, match="missing here, segments 1, corr"):
        check_sctk(Result(result.segments[1:], result.titles), *files)
    unlabelled = tuple(segment._replace(labels=()) for segment in result.segments)
    with pytest.raises(AsrtoolError, match=r"label o: missing here, segments \d+"):
        check_sctk(Result(unlabelled, result.titles), *files)


def test_without_sctk_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = make_files(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sctk, "DEBIAN_FOLDER", str(tmp_path))
    with pytest.raises(AsrtoolError, match=r"no hubscr\.pl on PATH or in .*; install SCTK \(Debian package sctk\)"):
        check_sctk(score_hub5(*files), *files)


def test_a_failure_of_sctk_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = make_files(tmp_path)
    program = tmp_path / "hubscr.pl"
    program.write_text("#!/bin/sh\necho no disk >&2\nexit 3\n")
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(AsrtoolError, match=r"failed on .*h\.ctm with exit code 3: no disk"):
        check_sctk(score_hub5(*files), *files)
