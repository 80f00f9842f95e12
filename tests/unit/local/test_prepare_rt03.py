"""RT-03 and Hub5'01: references in several files or with odd times become one that the scorer takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_releases import dropped, supervisions, write_hub5_01, write_rt03

from asrtool.errors import AsrtoolError
from asrtool.local.corpora.nist import Hub5Of2001, Rt03
from asrtool.score.hub5 import score_hub5
from asrtool.settings.data import Data


def prepare(corpus: Path, data: Data = Data(bad_fraction=0.9)) -> Path:  # noqa: B008
    Rt03().prepare(corpus, corpus.parent / "rt03", data)
    return corpus.parent / "rt03" / "test"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_rt03(tmp_path / "a place with spaces")


def test_scored_segments_of_both_parts_are_read_on_their_sides(corpus: Path) -> None:
    found = [(s["id"], s["channel"], s["speaker"], s["text"]) for s in supervisions(prepare(corpus, Data()))]
    assert found == [
        ("fsh_60262-0", 0, "fsh_60262-A", "i do it is halloween"),
        ("sw_46732-0", 0, "sw_46732-A", "i know it"),
        ("sw_46732-1", 1, "sw_46732-B", "yes"),
        ("sw_46732-2", 1, "sw_46732-B", ""),
    ]


def test_the_reference_is_one_file_with_letters_for_sides_and_without_gaps(corpus: Path) -> None:
    lines = (prepare(corpus) / "ref.stm").read_text().splitlines()
    assert lines == [
        ';; CATEGORY "0" "" ""',
        ';; LABEL "O" "Overall" "Overall"',
        ';; LABEL "SW" "Switchboard" "Switchboard"',
        *(f';; LABEL "{name}" "{name}" ""' for name in ("FI", "M", "STANDARD", "F")),
        "fsh_60262 A fsh_60262_A 1.0  2.77 <O,FI,M,STANDARD>  I DO IT IS  HALLOWEEN",
        "sw_46732 A sw_46732_A 0.00 0.50 <O,SW,F,STANDARD> IGNORE_TIME_SEGMENT_IN_SCORING",
        "sw_46732 A sw_46732_A 0.50 1.50 <O,SW,F,STANDARD>  I KNOW (IT",
        "sw_46732 B sw_46732_B 2.00 3.50 <O,SW,M,STANDARD> YES",
        "sw_46732 B sw_46732_B 3.50 3.75 <O,SW,M,STANDARD>",
    ]


def test_the_scorer_takes_the_reference_and_counts_its_parts(corpus: Path, tmp_path: Path) -> None:
    stm = corpus / "LDC2007S10/data/references/eval03/english/cts/sw_46732.stm"
    stm.write_text(stm.read_text().replace("((IT", "IT"))
    out = prepare(corpus)
    words = "sw_46732 A 0.6 0.1 i\nsw_46732 A 0.8 0.1 know\nsw_46732 B 2.5 0.1 no\nfsh_60262 A 1.5 0.1 halloween\n"
    (tmp_path / "hyp.ctm").write_text(words)
    result = score_hub5(out / "ref.stm", tmp_path / "hyp.ctm", out / "ref.glm")
    found = {label: (counts.segments, counts.num_words, counts.err) for label, counts in result.labels.items()}
    assert (found["O"], found["FI"], found["SW"]) == ((4, 9, 6), (1, 5, 4), (3, 4, 2))


@pytest.mark.parametrize("kind", ["stm", "glm"])
def test_a_missing_file_is_named(corpus: Path, kind: str) -> None:
    for path in list(corpus.rglob(f"*.{kind}")):
        path.unlink()
    with pytest.raises(AsrtoolError, match=rf"LDC2007S10: no .*{kind} in it; .*see paths.ldc2007s10"):
        prepare(corpus)


def test_the_mini_corpus_has_one_that_is_read_without_a_fault(mini_rt03: Path, tmp_path: Path) -> None:
    Rt03().prepare(mini_rt03, tmp_path, Data())
    assert not dropped(tmp_path / "test")
    assert {s["recording_id"].partition("_")[0] for s in supervisions(tmp_path / "test")} == {"sw", "fsh"}
    assert "inter_segment_gap" not in (tmp_path / "test" / "ref.stm").read_text()


def test_times_of_hub5_01_agree_with_its_partition_in_hundredths(tmp_path: Path) -> None:
    corpus = write_hub5_01(tmp_path / "corpus")
    Hub5Of2001().prepare(corpus, tmp_path / "m", Data(segment_padding_s=0))
    (segment,) = supervisions(tmp_path / "m" / "test")
    assert (segment["start"], segment["duration"], segment["text"]) == (1.278, 1.282, "yeah who else monkeys")
    assert "1.278009 2.56 <O,M,P0,P0-M> YEAH" in (tmp_path / "m" / "test" / "ref.stm").read_text()
    pem = next(corpus.rglob("hub5e_01.pem"))
    pem.write_text(pem.read_text().replace("2.555553", "2.575553"))
    with pytest.raises(
        AsrtoolError, match=r"stm and pem of Hub5'01 differ in 1 of \d+ segments, .* sw4653 A 1\.28 2\.5"
    ):
        Hub5Of2001().prepare(corpus, tmp_path / "m", Data())
