"""Published corpora in small trees of their layouts, and the pairs and lists of AN4."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from published_releases import (
    HEADINGS,
    write_commonvoice,
    write_librispeech,
    write_mls,
    write_peoples_speech,
    write_tedlium,
)
from small_releases import dropped, make_data, read_jsonl, supervisions, write_fisher, write_sound, write_swbd

from asrtool.errors import AsrtoolError
from asrtool.local.corpora.an4 import Corpus as An4
from asrtool.local.corpora.fisher import Corpus as Fisher
from asrtool.local.corpora.fisher import FisherSwbd
from asrtool.local.corpora.public import CommonVoice, LibriSpeech, Mls, PeoplesSpeech, TedLium
from asrtool.local.corpora.swbd import Corpus as Swbd
from asrtool.local.corpus import Corpus
from asrtool.local.releases.releases import collect_corpora
from asrtool.local.text.references import NO_RULES_GLM
from asrtool.local.utterances import staging
from asrtool.settings.data import Data

LENIENT = Data(bad_fraction=0.9)


@pytest.mark.parametrize(
    ("kind", "write", "role", "expected"),
    [
        (LibriSpeech, write_librispeech, "train", ["19: northanger abbey", "19: this little work wasn't finished"]),
        (Mls, write_mls, "train", ["4800: oh my dear you must see him"]),
        (CommonVoice, write_commonvoice, "test", ["speakertest: she said it's fine"]),
        (PeoplesSpeech, write_peoples_speech, "train", ["a_talk: yes we can"]),
        (TedLium, write_tedlium, "dev", ["Talk_dev: they're fine"]),
    ],
)
def test_each_set_has_speakers_and_normalised_text(
    kind: type[Corpus], write: Callable[[Path], None], role: str, expected: list[str], tmp_path: Path
) -> None:
    write(tmp_path / "site")
    name, out = kind().name, tmp_path / "out"
    named, paths = make_data((name,), (name,), (name,)), {name: str(tmp_path / "site")}
    collect_corpora(tmp_path / "corpus", named, paths, lambda *_: pytest.fail("no mini"))
    kind().prepare(tmp_path / "corpus", out, LENIENT)
    assert [f"{s['speaker']}: {s['text']}" for s in supervisions(out / role)] == expected
    for each in ("train", "dev", "test"):
        assert supervisions(out / each)
        for recording in read_jsonl(out / each / "recordings.jsonl.gz"):
            source = Path(recording["sources"][0]["source"])
            assert source.is_file()  # not a link of a folder that is gone
            assert source.is_relative_to(tmp_path / "corpus")  # so another site, linked there, changes no features


@pytest.mark.parametrize("release", HEADINGS)
def test_each_release_of_common_voice_is_read_whatever_its_columns(release: int, tmp_path: Path) -> None:
    write_commonvoice(tmp_path / "commonvoice", release)
    CommonVoice().prepare(tmp_path, tmp_path / "out", Data())
    for role in ("train", "dev", "test"):
        (said,) = supervisions(tmp_path / "out" / role)
        clip = f"common_voice_en_{role}"  # as lhotse names it
        assert (said["id"], said["recording_id"], said["speaker"]) == (clip, clip, f"speaker{role}")


def test_only_the_parts_that_are_there_are_read(tmp_path: Path) -> None:
    write_librispeech(tmp_path / "librispeech")
    LibriSpeech().prepare(tmp_path, tmp_path / "all", Data())
    labels = re.findall("<O,(.*)>", (tmp_path / "all" / "test" / "ref.stm").read_text())
    assert sorted({*labels}) == [label for label, _ in LibriSpeech.labels] == ["test-clean", "test-other"]
    (tmp_path / "librispeech" / "LibriSpeech" / "test-clean").rename(tmp_path / "elsewhere")
    LibriSpeech().prepare(tmp_path, tmp_path / "out", Data())
    assert "test-clean" not in (tmp_path / "out" / "test" / "ref.stm").read_text()


def test_numbers_in_digits_and_unknown_speakers_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_peoples_speech(tmp_path / "peoples_speech")
    PeoplesSpeech().prepare(tmp_path, tmp_path / "out", LENIENT)
    assert list(dropped(tmp_path / "out" / "train").values()) == ["unknown characters"]
    assert "peoples_speech: the speakers of 3 of 3 recordings or channels are not known" in caplog.text


def test_what_lhotse_stops_at_is_one_line_with_the_key(tmp_path: Path) -> None:
    write_tedlium(tmp_path / "tedlium")
    next((tmp_path / "tedlium").rglob("train/sph/*.sph")).unlink()
    message = r"cannot read TED-LIUM 3 .*: AssertionError: .*check paths.tedlium"
    with pytest.raises(AsrtoolError, match=message) as caught:
        TedLium().prepare(tmp_path, tmp_path / "out", Data())
    assert "\n" not in str(caught.value)


def test_fisher_and_switchboard_are_both_of_their_manifests(tmp_path: Path) -> None:
    corpus = write_fisher(write_swbd(tmp_path / "site"))
    for each in (FisherSwbd(), Fisher(), Swbd()):
        each.prepare(corpus, tmp_path / each.name, Data())
    both, fisher, swbd = (supervisions(tmp_path / name / "train") for name in ("fisher_swbd", "fisher", "swbd"))
    assert both == fisher + swbd


def test_a_full_temporary_disk_is_reported() -> None:
    with pytest.raises(AsrtoolError, match="no room for temporary files; free some space, or set TMPDIR"), staging():
        raise OSError(errno.ENOSPC, "No space left on device")


def write_list(root: Path, name: str, entries: dict[str, str]) -> None:
    etc = root / "etc"
    etc.mkdir(parents=True, exist_ok=True)
    (etc / f"{name}.fileids").write_text("".join(f"{place}\n" for place in entries))
    lines = (f"<s> {text} </s> ({place.rpartition('/')[2]})\n" for place, text in entries.items())
    (etc / f"{name}.transcription").write_text("".join(lines))


@pytest.fixture
def an4(tmp_path: Path) -> Path:
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


def prepare_an4(folder: Path, data: Data = LENIENT) -> Path:
    An4().prepare(folder.parent, folder.parent / "manifests", data)
    return folder.parent / "manifests"


def test_audio_of_every_form_is_read(an4: Path) -> None:
    out = prepare_an4(an4, Data()) / "train"
    assert [(s["id"], s["speaker"], s["text"], s["duration"]) for s in supervisions(out)] == [
        (f"an{i}-fash-b", "an4-fash", f"yes {'abcd'[i]}", 1.0) for i in range(4)
    ]
    suffixes = [Path(r["sources"][0]["source"]).suffix for r in read_jsonl(out / "recordings.jsonl.gz")]
    assert suffixes == [".sph", ".wav", ".flac", ".flac"]
    samples, rate_hz = soundfile.read(out / "audio" / "an3-fash-b.flac", dtype="int16")
    assert rate_hz == 16000
    np.testing.assert_array_equal(samples, np.arange(16000))
    out = an4.parent / "manifests" / "test"
    assert (out / "ref.stm").read_text().splitlines()[-1] == (
        "cen8-mxyz-b/cen8-mxyz-b A an4-mxyz 0.000 1.000 <O,an4> rubout g m"
    )
    assert (out / "ref.glm").read_text() == NO_RULES_GLM


def test_stereo_and_another_rate_are_set_aside(an4: Path) -> None:
    folder = an4 / "wav" / "an4_clstk" / "fash"
    soundfile.write(folder / "an1-fash-b.wav", np.zeros((100, 2)), 16000)
    soundfile.write(folder / "an2-fash-b.flac", np.zeros(100), 8000)
    out = prepare_an4(an4) / "train"
    assert dropped(out) == {"an1-fash-b": "unusable audio", "an2-fash-b": "unusable audio"}
    details = (out / "dropped.tsv").read_text()
    assert "an1-fash-b.wav: 2 channels, expected 1" in details
    assert "an2-fash-b.flac: sampling rate is 8000 Hz, expected 16000 Hz" in details


def test_missing_partners_are_set_aside(an4: Path) -> None:
    (an4 / "wav" / "an4_clstk" / "fash" / "an1-fash-b.wav").unlink()
    ids, texts = an4 / "etc" / "an4_train.fileids", an4 / "etc" / "an4_train.transcription"
    ids.write_text(ids.read_text().replace("an4_clstk/fash/an2-fash-b\n", ""))
    texts.write_text(texts.read_text().replace("<s> YES A </s> (an0-fash-b)\n", ""))
    assert dropped(prepare_an4(an4) / "train") == {
        "an0-fash-b": "no transcript",
        "an1-fash-b": "no audio",
        "an2-fash-b": "no audio",
    }


def test_a_broken_transcription_line_is_reported_with_its_number(an4: Path) -> None:
    path = an4 / "etc" / "an4_train.transcription"
    path.write_text(path.read_text() + "YES without an id\n")
    with pytest.raises(
        AsrtoolError, match=r"an4_train.transcription, line 5: 'YES without an id', expected WORDS \(ID\)"
    ):
        prepare_an4(an4)
    with pytest.raises(AsrtoolError, match=r"an4_train.fileids: missing; set paths.an4"):
        An4().prepare(an4 / "wav", an4 / "out", LENIENT)


def test_the_real_corpus_is_read_whole(shared: Path, tmp_path: Path) -> None:
    An4().prepare(shared / "data", tmp_path, Data())
    assert len(supervisions(tmp_path / "train")) == 848
    test = supervisions(tmp_path / "test")
    assert (len(test), sum(len(s["text"].split()) for s in test)) == (100, 591)
