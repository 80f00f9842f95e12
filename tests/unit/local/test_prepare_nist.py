"""NIST's test sets: the scored segments of the stm, widened; the faults of references corrected."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_releases import dropped, supervisions, write_hub5, write_hub5_01, write_rt03, write_sound

from asrtool.errors import AsrtoolError
from asrtool.local.corpora.nist import GAP, Evaluation, Hub5, Hub5Of2001, Rt03, parse_stm
from asrtool.local.mini.corpus import make_corpus
from asrtool.score.hub5 import score_hub5
from asrtool.settings.data import Data, Mini

LENIENT = Data(bad_fraction=0.9)


def prepare(corpus: Path, data: Data = LENIENT, kind: type[Evaluation] = Hub5) -> Path:
    kind().prepare(corpus, corpus.parent / "manifests", data)
    return corpus.parent / "manifests" / "test"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_hub5(tmp_path / "a place with spaces")


@pytest.mark.parametrize("nested", [True, False])
def test_scored_segments_are_read_on_their_sides(tmp_path: Path, nested: bool) -> None:
    out = prepare(write_hub5(tmp_path / "corpus", nested), Data())
    found = [(s["recording_id"], s["channel"], s["speaker"], s["text"]) for s in supervisions(out)]
    assert found == [
        ("en_4156", 0, "en_4156-A", "he is a uh police officer"),
        ("en_4156", 0, "en_4156-A", "th- a t v"),
        ("en_4156", 1, "en_4156-B", "yes"),
        ("sw_4390", 0, "sw_4390-A", "well"),
        ("sw_4390", 1, "sw_4390-B", "uh-huh"),
    ]


def test_segments_are_widened_and_the_faults_of_the_reference_corrected(corpus: Path) -> None:
    out = prepare(corpus)
    first, second, third, fourth, _ = supervisions(out)
    assert (first["start"], first["duration"]) == (0.4, 1.13)  # to the middle of the gap from 1.50 to 1.56
    assert first["custom"] == {"scored_start_s": 0.5, "scored_duration_s": 1.0}
    assert (second["start"], second["duration"]) == (1.53, 0.57)
    assert third["start"] + third["duration"] == pytest.approx(4.0)  # the end of the recording
    assert fourth["start"] == 0.0
    stm = (out / "ref.stm").read_text()
    assert "(TH-) {A / THE}  T. V." in stm
    assert "((" not in stm
    assert "ASIDE" not in stm
    assert "IGNORE_TIME_SEGMENT_IN_SCORING" in stm
    assert (out / "ref.glm").read_text() == (corpus.rglob("*.glm").__next__()).read_text()


def test_a_sound_that_cannot_be_read_leaves_the_reference_too(corpus: Path) -> None:
    (corpus / "LDC2002S09" / "hub5e_00" / "english" / "en_4156.sph").write_bytes(b"broken")
    out = prepare(corpus)
    assert dropped(out) == {"en_4156": "unusable audio"}
    stm = (out / "ref.stm").read_text()
    assert "en_4156" not in stm
    assert stm.count("sw_4390 ") == 2
    assert ";; CATEGORY" in stm


def test_a_segment_that_ends_beyond_its_recording_ends_with_it(corpus: Path) -> None:
    for path in (*corpus.rglob("*.stm"), *corpus.rglob("*.pem")):
        path.write_text(path.read_text().replace("2.10 3.95", "2.10 4.50"))
    (segment,) = [s for s in supervisions(prepare(corpus, Data())) if s["text"] == "yes"]
    assert segment["start"] + segment["duration"] == pytest.approx(4.0)
    assert segment["custom"]["scored_duration_s"] == pytest.approx(1.9)


def test_sound_without_reference_and_the_reverse_are_set_aside(corpus: Path) -> None:
    english = corpus / "LDC2002S09" / "hub5e_00" / "english"
    (english / "en_4156.sph").unlink()
    write_sound(english / "en_9999.sph")
    assert dropped(prepare(corpus)) == {"en_4156": "no audio", "en_9999": "no transcript"}
    with pytest.raises(AsrtoolError, match=r"2 of 3 recordings cannot be used, .* en_9999: no transcript"):
        prepare(corpus, Data())


def test_a_pem_that_differs_is_an_error_or_where_it_is_allowed_a_warning(
    corpus: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = supervisions(prepare(corpus))
    pem = corpus / "LDC2002S09" / "hub5e_00" / "english" / "hub5e_00.pem"
    pem.write_text(pem.read_text().replace("en_4156 A unknown_speaker 0.00 0.50\n", ""))  # which is not scored
    assert supervisions(prepare(corpus, Data())) == before
    pem.write_text(pem.read_text().replace("2.10 3.95", "2.10 3.90"))
    differ = r"differ in 1 of 5 segments, the first is en_4156 B 2.10 3.90; .*bad_fraction=1"
    with pytest.raises(AsrtoolError, match=differ):
        prepare(corpus, Data())
    for allowed in (0.2, 1.0):
        caplog.clear()
        assert supervisions(prepare(corpus, Data(bad_fraction=allowed))) == before
        assert "differ in 1 of 5 segments, the first is en_4156 B 2.10 3.90: the stm is used" in caplog.text
    pem.write_text("".join(f"en_4156 B speaker {second}.01 {second}.02\n" for second in range(7)))
    assert supervisions(prepare(corpus, Data(bad_fraction=1.0))) == before
    with pytest.raises(AsrtoolError, match="differ in 7 of 5 segments"):
        prepare(corpus, Data(bad_fraction=0.9))


@pytest.mark.parametrize("name", ["hub5e00.english.000405.stm", "en20000405_hub5.glm", "hub5e_00.pem"])
def test_a_missing_file_is_named(corpus: Path, name: str) -> None:
    next(corpus.rglob(name)).unlink()
    with pytest.raises(AsrtoolError, match=r"LDC2002(S09|T43): no .*(stm|glm|pem) in it; .*see paths.ldc2002"):
        prepare(corpus)


def test_a_broken_reference_line_is_named_by_its_number() -> None:
    with pytest.raises(AsrtoolError, match="reference stm, line 2: 'en_4156 C x 1 2 HI', expected recording, channel"):
        parse_stm(";; a comment\nen_4156 C x 1 2 HI\n")


@pytest.fixture
def rt03(tmp_path: Path) -> Path:
    return write_rt03(tmp_path / "a place with spaces")


def test_scored_segments_of_both_parts_are_read_on_their_sides(rt03: Path) -> None:
    found = [(s["id"], s["channel"], s["speaker"], s["text"]) for s in supervisions(prepare(rt03, kind=Rt03))]
    assert found == [
        ("fsh_60262-0", 0, "fsh_60262-A", "i do it is halloween"),
        ("sw_46732-0", 0, "sw_46732-A", "i know it"),
        ("sw_46732-1", 1, "sw_46732-B", "yes"),
        ("sw_46732-2", 1, "sw_46732-B", ""),
    ]


def test_references_of_calls_become_one_with_letters_for_sides_and_without_gaps(rt03: Path) -> None:
    lines = (prepare(rt03, kind=Rt03) / "ref.stm").read_text().splitlines()
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


def test_the_scorer_takes_the_reference_and_counts_its_parts(rt03: Path, tmp_path: Path) -> None:
    stm = rt03 / "LDC2007S10/data/references/eval03/english/cts/sw_46732.stm"
    stm.write_text(stm.read_text().replace("((IT", "IT"))
    out = prepare(rt03, kind=Rt03)
    words = "sw_46732 A 0.6 0.1 i\nsw_46732 A 0.8 0.1 know\nsw_46732 B 2.5 0.1 no\nfsh_60262 A 1.5 0.1 halloween\n"
    (tmp_path / "hyp.ctm").write_text(words)
    result = score_hub5(out / "ref.stm", tmp_path / "hyp.ctm", out / "ref.glm")
    counts = {label: part.overall for label, part in result.labels.items()}
    found = {label: (of_it.segments, of_it.num_words, of_it.err) for label, of_it in counts.items()}
    assert (found["O"], found["FI"], found["SW"]) == ((4, 9, 6), (1, 5, 4), (3, 4, 2))


@pytest.mark.parametrize(("kind", "parts"), [(Hub5, {"en", "sw"}), (Rt03, {"fsh", "sw"})])
def test_sets_of_the_mini_corpus_are_read_without_a_fault(
    kind: type[Evaluation], parts: set[str], tmp_path: Path
) -> None:
    corpus, out = tmp_path / "corpus", tmp_path / "out"
    make_corpus(corpus, Mini(train_hours=0.005, test_minutes=0.5, seed=7), [kind.name])
    kind().prepare(corpus, out, Data())
    assert not dropped(out / "test")
    assert {s["recording_id"].partition("_")[0] for s in supervisions(out / "test")} == parts
    assert any(GAP in path.read_text() for path in corpus.rglob("*.stm")) is (kind is Rt03)


def test_times_of_hub5_01_agree_with_its_partition_in_hundredths(tmp_path: Path) -> None:
    corpus = write_hub5_01(tmp_path / "corpus")
    out = prepare(corpus, Data(segment_padding_s=0), Hub5Of2001)
    (segment,) = supervisions(out)
    assert (segment["start"], segment["duration"], segment["text"]) == (1.278, 1.282, "yeah who else monkeys")
    assert "1.278009 2.56 <O,M,P0,P0-M> YEAH" in (out / "ref.stm").read_text()
    pem = next(corpus.rglob("hub5e_01.pem"))
    pem.write_text(pem.read_text().replace("2.555553", "2.575553"))
    with pytest.raises(
        AsrtoolError, match=r"stm and pem of Hub5'01 differ in 1 of \d+ segments, .* sw4653 A 1\.28 2\.5"
    ):
        prepare(corpus, Data(), Hub5Of2001)
