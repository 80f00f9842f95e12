"""Switchboard: faults of a release are set aside one by one, and the rest is as lhotse reads it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from small_releases import dropped, supervisions, write_sound, write_swbd, write_swbd_side

from asrtool.errors import AsrtoolError
from asrtool.local.corpora.swbd import Corpus, read_acronyms
from asrtool.settings.data import Data

LENIENT = Data(bad_fraction=0.9)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    return write_swbd(tmp_path / "a place with spaces")


def prepare(release: Path, data: Data = LENIENT) -> Path:
    Corpus().prepare(release, release.parent / "manifests" / "swbd", data)
    return release.parent / "manifests" / "swbd" / "train"


CALLS = '2001, "A", 1011, "555", 1\n2001, "B", , "556", 1\n2002, "A", 1011, "5", 1\n2002, "B", 1013, "5", 1\n'
CONVERSATIONS = '2001, "Y", 1011, , 301\n2002,"Y",1011,1013,302\n'


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("LDC97S62_docs/tables/CALL_CON_TAB.CSV", CALLS),
        ("LDC97S62_docs/conv_tab.csv", CONVERSATIONS),
        ("LDC97S62/conv.tab", CONVERSATIONS),
    ],
)
def test_tables_say_who_speaks_but_for_callers_that_they_leave_blank(
    release: Path, table: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (release / table).parent.mkdir(parents=True, exist_ok=True)
    (release / table).write_text(text)
    speakers = {(s["recording_id"], s["channel"]): s["speaker"] for s in supervisions(prepare(release))}
    assert speakers == {
        ("sw02001", 0): "swbd-1011",
        ("sw02001", 1): "sw02001-B",
        ("sw02002", 0): "swbd-1011",
        ("sw02002", 1): "swbd-1013",
    }
    assert "1 of 4 sides are not known" in caplog.text


def test_unknown_speakers_are_a_warning_that_says_what_is_not_guaranteed_and_what_to_set(
    release: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prepare(release)
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "swbd: the speakers of 4 of 4 sides are not known" in warning
    assert "Speakers of the held-out dev set may then be in training too" in warning
    assert "Set paths.ldc97s62_docs to the folder" in warning


def test_faults_of_conversations_are_set_aside(release: Path) -> None:
    for number in (2005, 2006):
        write_sound(release / "LDC97S62" / "swb1_d2" / "data" / f"sw0{number}.sph")
    write_swbd_side(release, 2006, "A", ["0.0 1.0 hello"])
    write_swbd_side(release, 2007, "A", ["0.0 1.0 hello"])
    write_swbd_side(release, 2002, "B", [])
    out = prepare(release)
    found = {id_: reason for id_, reason in dropped(out).items() if reason != "empty"}
    assert found == {
        "sw02002": "empty transcript",
        "sw02005": "no transcript",
        "sw02006": "no transcript",
        "sw02007": "no audio",
    }
    assert "no sw2006B-ms98-a-trans.text" in (out / "dropped.tsv").read_text()
    assert {s["recording_id"] for s in supervisions(out)} == {"sw02001"}


def test_a_folder_with_no_sound_in_it_is_named(release: Path) -> None:
    shutil.rmtree(release / "LDC97S62" / "swb1_d1")
    with pytest.raises(AsrtoolError, match=r"LDC97S62: no sw\*.sph in it; check paths.ldc97s62 and paths.swb_ms98"):
        prepare(release)


def test_acronyms_are_the_words_that_are_always_spelled_out(tmp_path: Path) -> None:
    dictionary = tmp_path / "sw-ms98-dict.text"
    dictionary.write_text(
        "a ax\nibm ay b iy eh m\nPCs p iy s iy z\nIBM's ay b iy eh m z\nus ah s\nUS y uw eh s\nis ih z\nTV  t iy v iy\n"
    )
    assert read_acronyms(dictionary) == {"ibm": "i b m", "pcs": "p c's", "ibm's": "i b m's", "tv": "t v"}
    assert read_acronyms(tmp_path / "none") == {}


def test_broken_lines_and_times_are_set_aside_and_a_late_end_is_trimmed(release: Path) -> None:
    lines = ["1.0 hello", "2.0 1.0 backwards", "3.0 7.0 the end", "9.0 9.5 too late", "1 2"]
    write_swbd_side(release, 2002, "A", lines)
    out = prepare(release)
    reasons = {id_: reason for id_, reason in dropped(out).items() if "2002A" in id_}
    expected = {1: "broken line", 2: "bad times", 4: "bad times", 5: "broken line"}
    assert reasons == {f"sw2002A-ms98-a-000{number}": reason for number, reason in expected.items()}
    assert [s["duration"] for s in supervisions(out) if s["text"] == "the end"] == [1.0]


def test_faults_are_listed_in_the_order_of_the_discs_and_before_what_has_no_words(release: Path) -> None:
    write_sound(release / "LDC97S62" / "swb1_d0" / "data" / "sw02009.sph")
    for number, side in ((2009, "A"), (2009, "B"), (2001, "A")):
        write_swbd_side(release, number, side, ["1.0 hello", "0.0 1.0 hi", "1.0 2.0 [silence]"])
    broken = [f"sw{name}-ms98-a-0001" for name in ("2009A", "2009B", "2001A")]
    empty = [f"sw{name}-ms98-a-000{i}" for name, i in (("2001A", 3), ("2001B", 1), ("2002A", 1), ("2002B", 1))]
    empty += [f"sw{name}-ms98-a-0003" for name in ("2009A", "2009B")]
    assert list(dropped(prepare(release))) == broken + empty
