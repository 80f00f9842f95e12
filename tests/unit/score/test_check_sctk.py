"""``--check-sctk``: silent where SCTK counts the same, one line that names the first difference where not."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner
from hub5_cases import GLM, SCTK, Case, write

from asrtool.cli.results import score
from asrtool.data.manifests.sets import EvaluationSet, Sets, write_sets
from asrtool.errors import AsrtoolError
from asrtool.score import sctk
from asrtool.score.hub5 import score_hub5
from asrtool.score.result import Alignment, Pair, Result
from asrtool.score.sctk import check_sctk

needs_sctk = pytest.mark.skipif(not (SCTK / "hubscr.pl").exists(), reason=f"no SCTK in {SCTK} (Debian package sctk)")


def make_files(folder: Path) -> tuple[Path, Path, Path]:
    case = Case(4, num_files=4)
    write(folder, case.stm, case.ctm, GLM)
    return folder / "r.stm", folder / "h.ctm", folder / "g.glm"


@needs_sctk
def test_equal_counts_pass(tmp_path: Path) -> None:
    ref, hyp, glm = make_files(tmp_path)
    arguments = ["hub5", "--ref", ref, "--hyp", hyp, "--glm", glm, "--out", tmp_path / "out", "--check-sctk"]
    CliRunner().invoke(score, [str(argument) for argument in arguments], catch_exceptions=False)
    assert (tmp_path / "out/score.json").exists()
    check_sctk(score_hub5(ref, hyp), ref, hyp, None)


@needs_sctk
def test_every_set_and_method_is_checked(tmp_path: Path) -> None:
    for name in ("dev", "test"):
        ref, hyp, glm = make_files(tmp_path / name)
        for path, new in ((ref, "ref.stm"), (hyp, "greedy.ctm"), (glm, "ref.glm")):
            path.rename(path.with_name(new))
    write_sets(tmp_path, Sets((EvaluationSet("test"),)))
    arguments = ["all", str(tmp_path), str(tmp_path), str(tmp_path / "out"), "--check-sctk"]
    done = CliRunner().invoke(score, arguments, catch_exceptions=False)
    assert done.output.count("Overall") == 2


@needs_sctk
def test_the_first_difference_is_named(tmp_path: Path) -> None:
    files = make_files(tmp_path)
    result = score_hub5(*files)
    first = result.segments[3]
    wrong = first._replace(alignment=Alignment((*first.alignment.pairs, Pair("I", "", "more"))))
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
