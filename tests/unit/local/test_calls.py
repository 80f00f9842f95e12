"""Switchboard and Fisher: faults are set aside, the rest is as lhotse reads it, and texts go without audio."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import soundfile
from commands import run_command
from lhotse.audio.backend import audio_backend
from lhotse.recipes import prepare_fisher_english, prepare_switchboard
from memory import peak_bytes
from small_releases import (
    dropped,
    read_jsonl,
    supervisions,
    write_fisher,
    write_fisher_call,
    write_sound,
    write_swbd,
    write_swbd_side,
)

from asrtool.errors import AsrtoolError
from asrtool.local.corpora.fisher import Corpus as Fisher
from asrtool.local.corpora.swbd import Corpus as Swbd
from asrtool.local.corpora.swbd import read_acronyms
from asrtool.local.corpus import Corpus
from asrtool.local.text.own_text import write_extra_texts
from asrtool.settings.data import Data

LENIENT = Data(bad_fraction=0.9)


@pytest.fixture
def swbd(tmp_path: Path) -> Path:
    return write_swbd(tmp_path / "a place with spaces")


def prepare(corpus: Swbd | Fisher, releases: Path, data: Data = LENIENT) -> Path:
    corpus.prepare(releases, releases.parent / "manifests" / corpus.name, data)
    return releases.parent / "manifests" / corpus.name / "train"


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
    swbd: Path, table: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (swbd / table).parent.mkdir(parents=True, exist_ok=True)
    (swbd / table).write_text(text)
    speakers = {(s["recording_id"], s["channel"]): s["speaker"] for s in supervisions(prepare(Swbd(), swbd))}
    assert speakers == {
        ("sw02001", 0): "swbd-1011",
        ("sw02001", 1): "sw02001-B",
        ("sw02002", 0): "swbd-1011",
        ("sw02002", 1): "swbd-1013",
    }
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "swbd: the speakers of 1 of 4 recordings or channels are not known" in warning
    assert "Set paths.ldc97s62_docs to the folder" in warning


def test_faults_of_conversations_are_set_aside(swbd: Path) -> None:
    for number in (2005, 2006):
        write_sound(swbd / "LDC97S62" / "swb1_d2" / "data" / f"sw0{number}.sph")
    write_swbd_side(swbd, 2006, "A", ["0.0 1.0 hello"])
    write_swbd_side(swbd, 2007, "A", ["0.0 1.0 hello"])
    write_swbd_side(swbd, 2002, "B", [])
    out = prepare(Swbd(), swbd)
    found = {id_: reason for id_, reason in dropped(out).items() if reason != "empty"}
    assert found == {
        "sw02002": "empty transcript",
        "sw02005": "no transcript",
        "sw02006": "no transcript",
        "sw02007": "no audio",
    }
    assert "no sw2006B-ms98-a-trans.text" in (out / "dropped.tsv").read_text()
    assert {s["recording_id"] for s in supervisions(out)} == {"sw02001"}


def test_a_release_without_its_files_is_named(swbd: Path, tmp_path: Path) -> None:
    shutil.rmtree(swbd / "LDC97S62" / "swb1_d1")
    with pytest.raises(AsrtoolError, match=r"LDC97S62: no sw\*.sph in it; check paths.ldc97s62 and paths.swb_ms98"):
        prepare(Swbd(), swbd)
    write_fisher_call(tmp_path, 1, 1, LINES)
    with pytest.raises(AsrtoolError, match=r"LDC2005S13: no fe_03_\*.sph in it; check paths.ldc2005s13"):
        prepare(Fisher(), tmp_path)


def test_acronyms_are_the_words_that_are_always_spelled_out(tmp_path: Path) -> None:
    dictionary = tmp_path / "sw-ms98-dict.text"
    dictionary.write_text(
        "a ax\nibm ay b iy eh m\nPCs p iy s iy z\nIBM's ay b iy eh m z\nus ah s\nUS y uw eh s\nis ih z\nTV  t iy v iy\n"
    )
    assert read_acronyms(dictionary) == {"ibm": "i b m", "pcs": "p c's", "ibm's": "i b m's", "tv": "t v"}
    assert read_acronyms(tmp_path / "none") == {}


def test_broken_lines_and_times_are_set_aside_and_a_late_end_is_trimmed(swbd: Path) -> None:
    lines = ["1.0 hello", "2.0 1.0 backwards", "3.0 7.0 the end", "9.0 9.5 too late", "1 2"]
    write_swbd_side(swbd, 2002, "A", lines)
    out = prepare(Swbd(), swbd)
    reasons = {id_: reason for id_, reason in dropped(out).items() if "2002A" in id_}
    expected = {1: "broken line", 2: "bad times", 4: "bad times", 5: "broken line"}
    assert reasons == {f"sw2002A-ms98-a-000{number}": reason for number, reason in expected.items()}
    assert [s["duration"] for s in supervisions(out) if s["text"] == "the end"] == [1.0]


LINES = ["0.50 1.50 A: hello", "1.60 2.90 B: yes"]


@pytest.fixture
def fisher(tmp_path: Path) -> Path:
    return write_fisher(tmp_path / "a place with spaces")


def test_both_parts_are_read_with_pins_and_text_whatever_their_nesting(fisher: Path) -> None:
    inner = fisher / "LDC2004T19" / "fe_03_p1_tran"
    for path in list(inner.iterdir()):
        path.rename(fisher / "LDC2004T19" / path.name)
    (fisher / "LDC2004T19/data/bbn_orig").mkdir()
    (fisher / "LDC2004T19/data/bbn_orig/fe_03_00007.txt").write_text("another version, which is not read")
    first = supervisions(prepare(Fisher(), fisher, Data()))
    assert [(s["recording_id"], s["channel"], s["speaker"], s["text"]) for s in first] == [
        ("fe_03_00001", 0, "fisher-2", "and i generally prefer t v"),
        ("fe_03_00001", 1, "fisher-3", "[vocalized-noise] wor- yes"),
        ("fe_03_05851", 0, "fisher-11702", "and i generally prefer t v"),
        ("fe_03_05851", 1, "fisher-11703", "[vocalized-noise] wor- yes"),
    ]
    assert [s.get("custom") for s in first] == 2 * [{"uncertain": True}, None]  # by its transcriber
    assert not dropped(fisher.parent / "manifests/fisher/train")


def test_faults_of_calls_are_set_aside(fisher: Path) -> None:
    write_fisher_call(fisher, 1, 2, LINES)[0].unlink()
    write_fisher_call(fisher, 1, 3, LINES)[1].unlink()
    write_fisher_call(fisher, 1, 4, LINES)[0].write_bytes(b"no sphere at all")
    write_fisher_call(fisher, 1, 5, LINES)[1].write_text("")
    write_fisher_call(fisher, 1, 6, ["not a turn"])
    out = prepare(Fisher(), fisher)
    assert dropped(out) == {
        "fe_03_00002": "no audio",
        "fe_03_00003": "no transcript",
        "fe_03_00004": "unusable audio",
        "fe_03_00005": "empty transcript",
        "fe_03_00006:4": "broken line",
    }
    assert len(supervisions(out)) == 4


def test_foreign_and_unintelligible_turns_are_left_out_on_purpose(fisher: Path) -> None:
    write_fisher_call(
        fisher, 1, 2, ["0.5 1.0 A: <german ja>", "1.0 1.5 A: well (( )) no", "2.0 2.5 B: yes", "3 3.5 B: (( ))"]
    )
    out = prepare(Fisher(), fisher, Data())
    assert sorted(dropped(out).values()) == ["empty", "foreign", "unintelligible"]


def test_a_speaker_that_the_table_leaves_blank_is_not_known(fisher: Path, caplog: pytest.LogCaptureFixture) -> None:
    for table in fisher.rglob("*_calldata.tbl"):
        lines = [line.split(",") for line in table.read_text().splitlines()]
        table.write_text("".join(",".join([*row[:5], " ", *row[6:]]) + "\n" for row in lines))
    first = supervisions(prepare(Fisher(), fisher))
    assert {s["speaker"] for s in first} == {"fe_03_00001-A", "fisher-3", "fe_03_05851-A", "fisher-11703"}
    for table in fisher.rglob("*_calldata.tbl"):
        table.unlink()
    prepare(Fisher(), fisher)
    assert "fisher: the speakers of 4 of 4 recordings or channels are not known" in caplog.text
    assert "lack a *_calldata.tbl" in caplog.text


def test_shorten_is_decoded_once(fisher: Path, shared: Path, caplog: pytest.LogCaptureFixture) -> None:
    sound, _ = write_fisher_call(fisher, 1, 2, LINES)
    real = (shared / "data" / "sph" / "123_2ulaw_shn.sph").read_bytes()
    sound.write_bytes(real[:1024].replace(b"sample_rate -i 20000", b"sample_rate -i 8000 ") + real[1024:])
    out = prepare(Fisher(), fisher, Data())
    (recording,) = [r for r in read_jsonl(out / "recordings.jsonl.gz") if r["id"] == "fe_03_00002"]
    flac = Path(recording["sources"][0]["source"])
    assert flac.parent == out / "audio"
    assert recording["num_samples"] == soundfile.info(flac).frames == 37120
    before = flac.stat().st_mtime_ns
    prepare(Fisher(), fisher, Data())
    assert flac.stat().st_mtime_ns == before


def test_the_slip_of_call_11487_is_corrected(fisher: Path) -> None:
    sound, _ = write_fisher_call(fisher, 2, 11487, ["31.09 234.06 A1: hello", "31.09 34.06 B2: yes"])
    write_sound(sound, 240)
    turns = [s for s in supervisions(prepare(Fisher(), fisher)) if s["recording_id"] == "fe_03_11487"]
    assert [(s["start"], s["duration"]) for s in turns] == [(31.09, 2.97), (231.09, 2.97)]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_turns(fisher: Path) -> None:
    """Only drops and the current call take memory; an object of lhotse for each turn takes several hundred bytes."""

    lines = [f"{i / 100:.2f} {i / 100 + 0.5:.2f} A: turn about nothing much" for i in range(150)]
    for number in range(2, 6):
        write_fisher_call(fisher, 1, number, lines)
    small = peak_bytes(lambda: prepare(Fisher(), fisher, Data()))
    for number in range(6, 16):
        write_fisher_call(fisher, 1, number, lines)
    assert (peak_bytes(lambda: prepare(Fisher(), fisher, Data())) - small) / (10 * 150) < 200


def swbd_by_lhotse(corpus: Path, _: Path) -> dict[str, Any]:
    audio, transcripts = (corpus / release.name for release in Swbd.releases[:2])
    return prepare_switchboard(audio, transcripts, omit_silence=False, absolute_paths=True)


def fisher_by_lhotse(corpus: Path, out: Path) -> dict[str, Any]:
    transcripts = ["LDC2004T19/fe_03_p1_tran", "LDC2005T19/fe_03_p2_tran"]
    return prepare_fisher_english(corpus, out, transcript_dirs=transcripts, absolute_paths=True, num_jobs=1)


@pytest.mark.parametrize(("corpus", "read"), [(Swbd(), swbd_by_lhotse), (Fisher(), fisher_by_lhotse)])
def test_ids_times_and_files_are_those_of_lhotse(
    corpus: Corpus, read: Callable[[Path, Path], dict[str, Any]], mini_corpus: Path, tmp_path: Path
) -> None:
    corpus.prepare(mini_corpus, tmp_path, Data())
    with audio_backend("LibsndfileBackend"):
        theirs = read(mini_corpus, tmp_path / "out")
    expected = {s.id: s.to_dict() for s in theirs["supervisions"]}
    keys = ("id", "recording_id", "start", "duration", "channel", "language")
    ours = supervisions(tmp_path / "train")
    assert len(ours) > 10
    for item in ours:
        assert list(item) == list(expected[item["id"]])
        assert [item[key] for key in keys] == [expected[item["id"]][key] for key in keys]
        if read is fisher_by_lhotse:
            assert item["speaker"] == f"fisher-{expected[item['id']]['speaker']}"
        else:  # of the table of calls
            assert item["speaker"].startswith("swbd-1")
    assert {item["id"] for item in ours} == expected.keys() - dropped(tmp_path / "train").keys()
    recordings = {r.id: r.to_dict() for r in theirs["recordings"]}
    assert all(r == recordings[r["id"]] for r in read_jsonl(tmp_path / "train" / "recordings.jsonl.gz"))


@pytest.fixture
def transcripts(tmp_path: Path) -> Path:
    """Fisher without audio."""
    root = tmp_path / "corpus"
    for part, number in ((1, 1), (2, 5851)):
        sound, _ = write_fisher_call(root, part, number, ["0.5 1.5 A: at&t (( maybe )) [laugh]", "1.6 2 B: well (( ))"])
        sound.unlink()
    return root


def test_transcripts_are_read_without_audio_and_files_as_plain_text(
    transcripts: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "My web.text").write_text("Hello, World!\n\nroom 42\n43\nuh-huh th- [noise]\n")
    names = ["fisher", str(tmp_path / "My web.text")]
    with caplog.at_level("INFO"):
        write_extra_texts(transcripts, tmp_path / "text", names)
    left_out = "2 sentences, 2 left out that cannot be normalised, the first is line 3: unknown characters: "
    assert f"{names[1]}: {left_out}" in caplog.text
    written = {path.name: path.read_text() for path in (tmp_path / "text").glob("[!.]*")}
    assert written == {
        "1.fisher.txt": "a t and t maybe [laughter]\n" * 2,
        "2.My_web.txt": "hello world\nuh-huh th- [noise]\n",
    }
    settings = ["--set", f"lm.extra_text=[{','.join(names)}]", "--set", "data.text_rules=unicode"]
    run_command("prepare", "text", transcripts, tmp_path / "text", *settings)
    assert (tmp_path / "text" / "2.My_web.txt").read_text() == "hello world\nroom 42\n43\nuh huh th [noise]\n"
    assert (tmp_path / "text" / "1.fisher.txt").read_text() == written["1.fisher.txt"]
    write_extra_texts(transcripts, tmp_path / "text", names[:1])
    assert [path.name for path in (tmp_path / "text").glob("[!.]*")] == ["1.fisher.txt"]


def test_what_cannot_be_read_of_the_transcripts_is_a_warning(
    transcripts: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = sorted(transcripts.rglob("fe_03_*.txt"))
    first.write_text("# a comment\n\n0.5 1.5 A: yes\n1.5 hello\n")
    second.write_text("\n")
    write_extra_texts(transcripts, tmp_path / "text", ["fisher"])
    assert (tmp_path / "text" / "1.fisher.txt").read_text() == "yes\n"
    assert "2 transcripts or lines cannot be read and are left out of the text" in caplog.text
    assert "the first is fe_03_00001:4: broken line: 1.5" in caplog.text


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("nowhere.txt", r"nowhere.txt: cannot be read, No such file"),
        ("swbd", r"lm.extra_text names swbd, whose transcripts are not read alone; name a file of its sentences"),
        ("42.txt", r"lm.extra_text: 42.txt has no line of words, the first is line 1: unknown .*; name another text"),
    ],
)
def test_a_text_that_gives_nothing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, found: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "42.txt").write_text("42\n")
    with pytest.raises(AsrtoolError, match=found):
        write_extra_texts(tmp_path, tmp_path / "text", [name])
