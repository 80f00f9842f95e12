"""Published corpora in small trees of their layouts: what lhotse reads becomes manifests with normalised text."""

from __future__ import annotations

import errno
import re
from pathlib import Path

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
from small_releases import dropped, make_data, read_jsonl, supervisions, write_fisher, write_swbd

from asrtool.errors import AsrtoolError
from asrtool.local.corpora.fisher import Corpus as Fisher
from asrtool.local.corpora.fisher import FisherSwbd
from asrtool.local.corpora.public import CommonVoice, LibriSpeech, Mls, PeoplesSpeech, TedLium
from asrtool.local.corpora.swbd import Corpus as Swbd
from asrtool.local.corpus import Corpus
from asrtool.local.releases.releases import collect_corpora
from asrtool.local.utterances import staging
from asrtool.settings.data import Data

LENIENT = Data(bad_fraction=0.9)


WRITERS = {
    LibriSpeech: write_librispeech,
    Mls: write_mls,
    CommonVoice: write_commonvoice,
    PeoplesSpeech: write_peoples_speech,
    TedLium: write_tedlium,
}


def prepare(kind: type[Corpus], tmp_path: Path, data: Data = LENIENT) -> Path:
    corpus = kind()
    write = WRITERS[kind]  # type: ignore[type-abstract]
    write(tmp_path / "site")
    named = make_data((corpus.name,), (corpus.name,), (corpus.name,))
    collect_corpora(
        tmp_path / "corpus", named, {corpus.name: str(tmp_path / "site")}, lambda *_: pytest.fail("no mini")
    )
    corpus.prepare(tmp_path / "corpus", tmp_path / "out", data)
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("kind", "role", "expected"),
    [
        (LibriSpeech, "train", ["19: northanger abbey", "19: this little work wasn't finished"]),
        (Mls, "train", ["4800: oh my dear you must see him"]),
        (CommonVoice, "test", ["speakertest: she said it's fine"]),
        (PeoplesSpeech, "train", ["a_talk: yes we can"]),
        (TedLium, "dev", ["Talk_dev: they're fine"]),
    ],
)
def test_each_set_has_speakers_and_normalised_text(
    kind: type[Corpus], role: str, expected: list[str], tmp_path: Path
) -> None:
    out = prepare(kind, tmp_path)
    assert [f"{s['speaker']}: {s['text']}" for s in supervisions(out / role)] == expected
    for each in ("train", "dev", "test"):
        assert supervisions(out / each)
        assert (out / each / "ref.stm").is_file()
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
    out = prepare(PeoplesSpeech, tmp_path)
    assert list(dropped(out / "train").values()) == ["unknown characters"]
    assert "peoples_speech: the speakers of 3 of 3 sides are not known" in caplog.text


def test_what_lhotse_stops_at_is_one_line_with_the_key(tmp_path: Path) -> None:
    write_tedlium(tmp_path / "tedlium")
    next((tmp_path / "tedlium").rglob("train/sph/*.sph")).unlink()
    with pytest.raises(
        AsrtoolError, match=r"cannot read TED-LIUM 3 .*: AssertionError: .*check paths.tedlium"
    ) as caught:
        TedLium().prepare(tmp_path, tmp_path / "out", Data())
    assert "\n" not in str(caught.value)


def test_fisher_and_switchboard_are_both_of_their_manifests(tmp_path: Path) -> None:
    corpus = write_fisher(write_swbd(tmp_path / "site"))
    for each in (FisherSwbd(), Fisher(), Swbd()):
        each.prepare(corpus, tmp_path / each.name, Data())
    both, fisher, swbd = (supervisions(tmp_path / name / "train") for name in ("fisher_swbd", "fisher", "swbd"))
    assert both == fisher + swbd


def test_mls_in_opus_is_read_as_that_in_flac(tmp_path: Path) -> None:
    if "OPUS" not in soundfile.available_subtypes("OGG"):
        pytest.skip("this libsndfile writes no Opus")
    found = []
    for suffix in (".flac", ".opus"):
        write_mls(tmp_path / suffix / "mls", suffix)
        Mls().prepare(tmp_path / suffix, tmp_path / suffix / "out", Data())
        found.append(supervisions(tmp_path / suffix / "out" / "train"))
    assert found[0] == found[1]


def test_a_full_temporary_disk_is_reported() -> None:
    with pytest.raises(AsrtoolError, match="no room for temporary files; free some space, or set TMPDIR"), staging():
        raise OSError(errno.ENOSPC, "No space left on device")
