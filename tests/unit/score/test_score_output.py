"""The files of a score and the commands that write them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from commands import run_command
from hub5_cases import GLM, write

from asrtool.cli.results import score
from asrtool.data.manifests.sets import EvaluationSet, Sets, write_sets
from asrtool.errors import AsrtoolError
from asrtool.score.hub5 import score_hub5
from asrtool.score.output import score_all, write_result
from asrtool.score.result import Alignment, Counts, Result, Segment
from asrtool.score.segments import read_segments
from asrtool.score.tables import format_confusions, name_of

STM = """;; LABEL "O" "Overall" "all"
;; LABEL "EN" "Callhome" "CallHome"
;; LABEL "SW" "Switchboard" "Switchboard"
sw_1 A sw_1_A 0 2 <O,sw> one two (uh) th- three
en_1 A en_1_A 0 2 <O,en> four
"""
CTM = "sw_1 A 0 0.1 one\nsw_1 A 0.5 0.1 the\nsw_1 A 0.6 0.1 tree\nen_1 A 0 1 for\nen_1 A 1 0.5 you\n"
FILES = [
    "alignment.html",
    "alignment.pra",
    "confusions.txt",
    "score.json",
    "segments.jsonl",
    "speakers.txt",
    "table.txt",
]


def write_decoded(folder: Path, *names: str) -> None:
    """References and what method greedy decoded."""
    for name in names:
        write(folder / name, STM, CTM, GLM)
        (folder / name / "r.stm").rename(folder / name / "ref.stm")
        (folder / name / "g.glm").rename(folder / name / "ref.glm")
        (folder / name / "h.ctm").rename(folder / name / "greedy.ctm")


def test_score_all_writes_every_set_and_method(tmp_path: Path) -> None:
    write_decoded(tmp_path, "dev", "test")
    results = score_all(tmp_path, tmp_path, tmp_path / "score", ["dev", "test", "other"])
    assert list(results) == [("dev", "greedy"), ("test", "greedy")]
    for name, method in results:
        assert sorted(path.name for path in (tmp_path / "score" / name / method).glob("[!.]*")) == FILES
    found = json.loads((tmp_path / "score/test/greedy/score.json").read_text())
    counts = {"segments": 2, "words": 6, "corr": 3, "sub": 2, "del": 1, "ins": 1, "err": 4}
    assert found["overall"] == {**counts, **results["test", "greedy"].characters._asdict()}
    assert list(found["labels"]) == ["O", "EN", "SW"]
    assert found["labels"]["EN"]["err"] == found["speakers"]["en_1_a"]["err"] == 2
    assert (tmp_path / "score/dev/greedy/table.txt").read_text().startswith("dev, greedy\n")


def test_segments_are_read_back_with_their_words_and_where_they_were_said(tmp_path: Path) -> None:
    write(tmp_path, STM, CTM, GLM)
    result = score_hub5(tmp_path / "r.stm", tmp_path / "h.ctm", tmp_path / "g.glm")
    write_result(result, tmp_path / "out", "x")
    found = read_segments(tmp_path / "out")
    assert [segment.alignment.pairs for segment in found] == [segment.alignment.pairs for segment in result.segments]
    assert [segment.alignment.counts for segment in found] == [segment.alignment.counts for segment in result.segments]
    assert [(segment.labels, *segment[5:]) for segment in found] == [
        (("O", "EN"), "en_1", "A", 0, 2),
        (("O", "SW"), "sw_1", "A", 0, 2),
    ]


def test_score_all_leaves_no_scores_of_a_set_that_is_not_tested_any_more(tmp_path: Path) -> None:
    write_decoded(tmp_path, "dev", "hub5", "rt03")
    score_all(tmp_path, tmp_path, tmp_path / "score", ["dev", "hub5", "rt03"])
    (tmp_path / "score/notes").mkdir()  # a person's own
    score_all(tmp_path, tmp_path, tmp_path / "score", ["dev", "rt03"])
    assert sorted(path.name for path in (tmp_path / "score").iterdir()) == ["dev", "notes", "rt03"]


def test_score_all_without_decoded_words_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"no SET/METHOD\.ctm for any of dev, calls; run the decode stage first"):
        score_all(tmp_path, tmp_path, tmp_path / "score", ["dev", "calls"])


def hub5(folder: Path, *words: str, out: str = "out", ctm: str = CTM) -> str:
    """Score `ctm` in `folder`; the output of the command."""
    write(folder, STM, ctm, GLM)
    paths = ["--ref", folder / "r.stm", "--hyp", folder / "h.ctm", "--out", folder / out]
    return CliRunner().invoke(score, ["hub5", *map(str, paths), *words], catch_exceptions=False).output


def test_hub5_prints_one_json_object_and_writes_the_same(tmp_path: Path) -> None:
    output = hub5(tmp_path, "--glm", str(tmp_path / "g.glm"), "--json")
    assert json.loads(output) == json.loads((tmp_path / "out/score.json").read_text())
    assert sorted(path.name for path in (tmp_path / "out").glob("[!.]*")) == FILES


def test_a_folder_of_other_files_gets_no_score_and_beside_a_score_they_stay(tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"holds other files, .* or one with score\.json; name another --out$"):
        hub5(tmp_path, out=".")
    assert len(list(tmp_path.iterdir())) == 3
    (tmp_path / "out").mkdir()
    for _ in range(2):
        hub5(tmp_path)
        (tmp_path / "out" / "notes").touch()
    assert sorted(path.name for path in (tmp_path / "out").glob("[!.]*")) == sorted([*FILES, "notes"])


def test_where_a_ctm_has_no_words_the_log_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hub5(tmp_path, ctm=";; nothing\n")
    assert "h.ctm: has no words for the" in caplog.text
    caplog.clear()
    hub5(tmp_path)
    assert not caplog.text


def test_the_alignment_shows_errors_in_upper_case(tmp_path: Path) -> None:
    hub5(tmp_path)
    text = (tmp_path / "out/alignment.pra").read_text()
    lines = ["REF:  one TWO (uh) th- THREE", "HYP:  one *** **** the TREE", "Eval:     D            S"]
    assert "\n".join(["Scores: (#C #S #D #I) 3 1 1 0", *lines, ""]) in text
    assert "     1  three -> tree\n" in (tmp_path / "out/confusions.txt").read_text()
    table = (tmp_path / "out/table.txt").read_text()
    assert [line.split()[0] for line in table.splitlines()[4:]] == ["Callhome", "Switchboard", "Overall"]


def test_confusions_are_sorted_by_their_number_and_then_by_words() -> None:
    alignment = Alignment("SSSSI", ["b", "z", "z", "a", ""], ["c", "y", "y", "c", "uh"])
    text = format_confusions(Result((Segment("s", "s", (), "", alignment),), {}))
    lines = ["4 substitutions, 3 different", "     2  z -> y", "     1  a -> c", "     1  b -> c", "", "0 deletions"]
    assert text.startswith("\n".join(lines))
    assert text.endswith("1 insertions, 1 different\n     1  uh\n")


def test_wer_prints_a_table(tmp_path: Path) -> None:
    (tmp_path / "ref").write_text("a b\n")
    (tmp_path / "hyp").write_text("a c\n")
    done = run_command("score", "wer", tmp_path / "ref", tmp_path / "hyp")
    assert done.output.splitlines()[-1].split() == ["Overall", "1", "2", "1", "1", "0", "0", "1", "50.00", "50.00"]


def hub5_sized(num_words: int, num_switchboard: int = 21395) -> Result:
    sizes = {"sw": (1831, num_switchboard), "en": (2628, num_words - num_switchboard)}
    segments = []
    for label, (num_segments, words) in sizes.items():
        lengths = [words - num_segments + 1] + [1] * (num_segments - 1)
        segments += [Segment("s", "s", ("O", label), "", Alignment("C" * num, "a" * num, "a" * num)) for num in lengths]
    return Result(tuple(segments), dict.fromkeys(["O", "sw", "en", "other"], ""))


def test_only_the_counts_of_hub5_00_make_a_table_of_that_name() -> None:
    full, short, moved = hub5_sized(42989), hub5_sized(42988), hub5_sized(42989, 21394)
    assert full.labels["other"].overall == Counts()
    assert name_of(moved, "test") == "test"
    assert name_of(full, "test") == "Hub5'00"
    assert name_of(short, "test") == "test"


def test_the_command_scores_the_sets_that_the_manifests_list(tmp_path: Path) -> None:
    write_decoded(tmp_path, "dev", "calls", "talks", "train")
    write_sets(tmp_path, Sets((EvaluationSet("talks"), EvaluationSet("calls"))))
    done = run_command("score", "all", tmp_path, tmp_path, tmp_path / "out")
    assert re.findall(r"^\w+, greedy", done.output, re.MULTILINE) == ["dev, greedy", "talks, greedy", "calls, greedy"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["calls", "dev", "talks"]
