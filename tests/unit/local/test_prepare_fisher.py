"""Fisher: the nesting of the tars, faults set aside, shorten decoded once."""

from __future__ import annotations

from pathlib import Path

import pytest
import soundfile
from memory import peak_bytes
from small_releases import dropped, read_jsonl, supervisions, write_fisher, write_fisher_call, write_sound

from asrtool.errors import AsrtoolError
from asrtool.local.corpora.fisher import Corpus
from asrtool.settings.data import Data

LENIENT = Data(bad_fraction=0.9)
LINES = ["0.50 1.50 A: hello", "1.60 2.90 B: yes"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_fisher(tmp_path / "a place with spaces")


def prepare(corpus: Path, data: Data = LENIENT) -> Path:
    Corpus().prepare(corpus, corpus.parent / "manifests" / "fisher", data)
    return corpus.parent / "manifests" / "fisher" / "train"


def test_both_parts_are_read_with_pins_and_text_whatever_their_nesting(corpus: Path) -> None:
    inner = corpus / "LDC2004T19" / "fe_03_p1_tran"
    for path in list(inner.iterdir()):
        path.rename(corpus / "LDC2004T19" / path.name)
    first = supervisions(prepare(corpus, Data()))
    assert [(s["recording_id"], s["channel"], s["speaker"], s["text"]) for s in first] == [
        ("fe_03_00001", 0, "fisher-2", "and i generally prefer t v"),
        ("fe_03_00001", 1, "fisher-3", "[vocalized-noise] wor- yes"),
        ("fe_03_05851", 0, "fisher-11702", "and i generally prefer t v"),
        ("fe_03_05851", 1, "fisher-11703", "[vocalized-noise] wor- yes"),
    ]
    assert [s.get("custom") for s in first] == 2 * [{"uncertain": True}, None]  # by its transcriber


def test_another_version_of_the_transcripts_is_not_read(corpus: Path) -> None:
    other = corpus / "LDC2004T19" / "fe_03_p1_tran" / "data" / "bbn_orig" / "fe_03_00007.txt"
    other.parent.mkdir()
    other.write_text("original")
    assert not dropped(prepare(corpus))


def test_faults_of_calls_are_set_aside(corpus: Path) -> None:
    write_fisher_call(corpus, 1, 2, LINES)[0].unlink()
    write_fisher_call(corpus, 1, 3, LINES)[1].unlink()
    write_fisher_call(corpus, 1, 4, LINES)[0].write_bytes(b"no sphere at all")
    write_fisher_call(corpus, 1, 5, LINES)[1].write_text("")
    write_fisher_call(corpus, 1, 6, ["not a turn"])
    out = prepare(corpus)
    assert dropped(out) == {
        "fe_03_00002": "no audio",
        "fe_03_00003": "no transcript",
        "fe_03_00004": "unusable audio",
        "fe_03_00005": "empty transcript",
        "fe_03_00006:4": "broken line",
    }
    assert len(supervisions(out)) == 4


def test_foreign_and_unintelligible_turns_are_left_out_on_purpose(corpus: Path) -> None:
    write_fisher_call(
        corpus, 1, 2, ["0.5 1.0 A: <german ja>", "1.0 1.5 A: well (( )) no", "2.0 2.5 B: yes", "3 3.5 B: (( ))"]
    )
    out = prepare(corpus, Data())
    assert sorted(dropped(out).values()) == ["empty", "foreign", "unintelligible"]


def test_a_speaker_that_the_table_leaves_blank_is_not_known(corpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    for table in corpus.rglob("*_calldata.tbl"):
        lines = [line.split(",") for line in table.read_text().splitlines()]
        table.write_text("".join(",".join([*row[:5], " ", *row[6:]]) + "\n" for row in lines))
    first = supervisions(prepare(corpus))
    assert {s["speaker"] for s in first} == {"fe_03_00001-A", "fisher-3", "fe_03_05851-A", "fisher-11703"}
    for table in corpus.rglob("*_calldata.tbl"):
        table.unlink()
    prepare(corpus)
    assert "fisher: the speakers of 4 of 4 sides are not known" in caplog.text
    assert "lack a *_calldata.tbl" in caplog.text


def test_a_missing_release_is_named(tmp_path: Path) -> None:
    write_fisher_call(tmp_path, 1, 1, LINES)
    with pytest.raises(AsrtoolError, match=r"LDC2005S13: no fe_03_\*.sph in it; check paths.ldc2005s13"):
        Corpus().prepare(tmp_path, tmp_path / "out", LENIENT)


def test_shorten_is_decoded_once(corpus: Path, shared: Path, caplog: pytest.LogCaptureFixture) -> None:
    sound, _ = write_fisher_call(corpus, 1, 2, LINES)
    real = (shared / "data" / "sph" / "123_2ulaw_shn.sph").read_bytes()
    sound.write_bytes(real[:1024].replace(b"sample_rate -i 20000", b"sample_rate -i 8000 ") + real[1024:])
    out = prepare(corpus, Data())
    (recording,) = [r for r in read_jsonl(out / "recordings.jsonl.gz") if r["id"] == "fe_03_00002"]
    flac = Path(recording["sources"][0]["source"])
    assert flac.parent == out / "audio"
    assert recording["num_samples"] == soundfile.info(flac).frames == 37120
    before = flac.stat().st_mtime_ns
    prepare(corpus, Data())
    assert flac.stat().st_mtime_ns == before


def test_the_slip_of_call_11487_is_corrected(corpus: Path) -> None:
    sound, _ = write_fisher_call(corpus, 2, 11487, ["31.09 234.06 A1: hello", "31.09 34.06 B2: yes"])
    write_sound(sound, 240)
    found = [(s["start"], s["duration"]) for s in supervisions(prepare(corpus)) if s["recording_id"] == "fe_03_11487"]
    assert found == [(31.09, 2.97), (231.09, 2.97)]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_turns(corpus: Path) -> None:
    """But for the number of drops, and a call at a time: an object of lhotse a turn takes several hundred bytes."""

    lines = [f"{i / 100:.2f} {i / 100 + 0.5:.2f} A: turn about nothing much" for i in range(150)]
    for number in range(2, 6):
        write_fisher_call(corpus, 1, number, lines)
    small = peak_bytes(lambda: prepare(corpus, Data()))
    for number in range(6, 16):
        write_fisher_call(corpus, 1, number, lines)
    assert (peak_bytes(lambda: prepare(corpus, Data())) - small) / (10 * 150) < 200
