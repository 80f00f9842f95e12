"""AN4: the published lists, audio in four forms, and what does not fit together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from small_releases import dropped, read_jsonl, supervisions, write_sound

from asrtool.errors import AsrtoolError
from asrtool.local.corpora.an4 import Corpus
from asrtool.local.text.references import NO_RULES_GLM
from asrtool.settings.data import Data

LENIENT = Data(bad_fraction=0.9)


def write_list(root: Path, name: str, entries: dict[str, str]) -> None:
    etc = root / "etc"
    etc.mkdir(parents=True, exist_ok=True)
    (etc / f"{name}.fileids").write_text("".join(f"{place}\n" for place in entries))
    lines = (f"<s> {text} </s> ({place.rpartition('/')[2]})\n" for place, text in entries.items())
    (etc / f"{name}.transcription").write_text("".join(lines))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    root = tmp_path / "a place with spaces" / "an4"
    train = {f"an4_clstk/fash/an{i}-fash-b": f"YES {'ABCD'[i]}" for i in range(4)}
    write_list(root, "an4_train", train)
    write_list(root, "an4_test", {"an4test_clstk/mxyz/cen8-mxyz-b": "RUBOUT G M"})
    folder = root / "wav" / "an4_clstk" / "fash"
    write_sound(folder / "an0-fash-b.sph", 1.0, 1, 16000)
    samples = np.arange(16000, dtype=np.int16)
    soundfile.write(folder / "an1-fash-b.wav", samples, 16000)
    soundfile.write(folder / "an2-fash-b.flac", samples, 16000)
    (folder / "an3-fash-b.raw").write_bytes(samples.astype("<i2").tobytes())
    write_sound(root / "wav" / "an4test_clstk" / "mxyz" / "cen8-mxyz-b.sph", 1.0, 1, 16000)
    return root


def prepare(corpus: Path, data: Data = LENIENT) -> Path:
    Corpus().prepare(corpus.parent, corpus.parent / "manifests", data)
    return corpus.parent / "manifests"


def test_audio_of_every_form_is_read(corpus: Path) -> None:
    out = prepare(corpus, Data()) / "train"
    assert [(s["id"], s["speaker"], s["text"], s["duration"]) for s in supervisions(out)] == [
        (f"an{i}-fash-b", "an4-fash", f"yes {'abcd'[i]}", 1.0) for i in range(4)
    ]
    suffixes = [Path(r["sources"][0]["source"]).suffix for r in read_jsonl(out / "recordings.jsonl.gz")]
    assert suffixes == [".sph", ".wav", ".flac", ".flac"]
    samples, rate_hz = soundfile.read(out / "audio" / "an3-fash-b.flac", dtype="int16")
    assert rate_hz == 16000
    np.testing.assert_array_equal(samples, np.arange(16000))


def test_the_test_list_has_a_reference_on_channel_a(corpus: Path) -> None:
    out = prepare(corpus) / "test"
    assert (out / "ref.stm").read_text().splitlines()[-1] == (
        "cen8-mxyz-b/cen8-mxyz-b A an4-mxyz 0.000 1.000 <O,an4> rubout g m"
    )
    assert (out / "ref.glm").read_text() == NO_RULES_GLM


def test_stereo_and_another_rate_are_set_aside(corpus: Path) -> None:
    folder = corpus / "wav" / "an4_clstk" / "fash"
    soundfile.write(folder / "an1-fash-b.wav", np.zeros((100, 2)), 16000)
    soundfile.write(folder / "an2-fash-b.flac", np.zeros(100), 8000)
    out = prepare(corpus) / "train"
    assert dropped(out) == {"an1-fash-b": "unusable audio", "an2-fash-b": "unusable audio"}
    details = (out / "dropped.tsv").read_text()
    assert "an1-fash-b.wav: 2 channels, expected 1" in details
    assert "an2-fash-b.flac: sampling rate is 8000 Hz, expected 16000 Hz" in details


def test_missing_partners_are_set_aside(corpus: Path) -> None:
    (corpus / "wav" / "an4_clstk" / "fash" / "an1-fash-b.wav").unlink()
    ids, texts = corpus / "etc" / "an4_train.fileids", corpus / "etc" / "an4_train.transcription"
    ids.write_text(ids.read_text().replace("an4_clstk/fash/an2-fash-b\n", ""))
    texts.write_text(texts.read_text().replace("<s> YES A </s> (an0-fash-b)\n", ""))
    assert dropped(prepare(corpus) / "train") == {
        "an0-fash-b": "no transcript",
        "an1-fash-b": "no audio",
        "an2-fash-b": "no audio",
    }


def test_a_broken_transcription_line_is_reported_with_its_number(corpus: Path) -> None:
    path = corpus / "etc" / "an4_train.transcription"
    path.write_text(path.read_text() + "YES without an id\n")
    with pytest.raises(
        AsrtoolError, match=r"an4_train.transcription, line 5: 'YES without an id', expected WORDS \(ID\)"
    ):
        prepare(corpus)
    with pytest.raises(AsrtoolError, match=r"an4_train.fileids: missing; set paths.an4"):
        Corpus().prepare(corpus / "wav", corpus / "out", LENIENT)


def test_the_real_corpus_is_read_whole(shared: Path, tmp_path: Path) -> None:
    Corpus().prepare(shared / "data", tmp_path, Data())
    assert len(supervisions(tmp_path / "train")) == 848
    test = supervisions(tmp_path / "test")
    assert (len(test), sum(len(s["text"].split()) for s in test)) == (100, 591)
