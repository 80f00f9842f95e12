"""Interface of corpora, for those of the toolkit and a custom one; no other code names a corpus."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_releases import make_data, supervisions, write_swbd

from asrtool.errors import AsrtoolError
from asrtool.local.corpus import ROLES, known_releases, named_corpora, open_corpus, prepare_all
from asrtool.local.releases.releases import collect_corpora
from asrtool.settings import registry
from asrtool.settings.config import check_conflicts
from asrtool.settings.toml_files import load_config

ROOT = Path(__file__).resolve().parents[3]
NAMES = registry.names("corpus")

OWN = """
from asrtool.local.corpus import Corpus, Release
from asrtool.local.layouts.folder import prepare_folder


class Diary(Corpus):
    name = "diary"
    title = "what I said"
    releases = (Release("my_diary", "the recordings", ("*.wav",)),)
    roles = ("train", "test")

    def prepare(self, corpus, out, data):
        for role in self.roles:
            prepare_folder(corpus / "my_diary" / role, out / role, data, self.name)


class Unready(Corpus):
    name = "unready"
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "diaries.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path / "package")
    monkeypatch.delitem(sys.modules, "diaries", raising=False)
    return "diaries"


@pytest.mark.parametrize("name", NAMES)
def test_a_corpus_has_its_name_and_says_what_it_needs(name: str) -> None:
    corpus = open_corpus(name)
    assert corpus.name == name
    assert corpus.title
    assert corpus.roles
    assert set(corpus.roles) <= set(ROLES)
    known = known_releases(make_data())
    assert all(known[release.key] == release for release in corpus.releases)  # those that share a key are the same
    for role in corpus.roles:
        assert any(role in release.roles for release in corpus.releases), role


def test_looking_at_all_corpora_loads_neither_lhotse_nor_torch() -> None:
    code = (
        "import sys; from asrtool.settings.toml_files import load_config; load_config(overrides=['paths.an4=x']);"
        "print([name for name in ('lhotse', 'torch', 'numpy', 'soundfile', 'click') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_calls_are_prepared_without_loading_lhotse(tmp_path: Path) -> None:
    code = "import sys; sys.modules['lhotse'] = None; from asrtool.cli.main import main; main()"
    words = ["prepare", "swbd", str(write_swbd(tmp_path / "corpus")), str(tmp_path / "out")]
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "train" / "report.json").is_file()


def test_a_persons_own_class_is_collected_and_prepared(own: str, tmp_path: Path) -> None:
    import numpy as np
    import soundfile

    for role in ("train", "test"):
        folder = tmp_path / "site" / role
        folder.mkdir(parents=True)
        soundfile.write(folder / "x.wav", np.zeros(8000), 8000)
        (folder / "x.txt").write_text("hello")
    overrides = [f"data.train={own}:Diary", f"data.test={own}:Diary", f"paths.my_diary={tmp_path / 'site'}"]
    config = load_config(overrides=overrides)
    collect_corpora(tmp_path / "corpus", config.data, config.paths, lambda *_: pytest.fail("no mini corpus"))
    prepare_all(tmp_path / "corpus", tmp_path / "m", config.data)
    for role in ("train", "test"):
        assert [s["text"] for s in supervisions(tmp_path / "m" / "corpora" / "diary" / role)] == ["hello"]


def test_an_own_class_without_a_part_is_refused_with_its_name(own: str) -> None:
    with pytest.raises(AsrtoolError, match="Unready: no corpus, it lacks prepare, releases, roles, title"):
        open_corpus(f"{own}:Unready")


def test_a_corpus_in_a_role_it_has_no_set_for_is_refused() -> None:
    with pytest.raises(AsrtoolError, match=r"data.dev names hub5, which has no dev set but test"):
        named_corpora(make_data(dev=("hub5",)))


@pytest.mark.parametrize(
    ("train", "extra", "fault"),
    [
        ("swbd,fisher_swbd", "", "data.train has speech twice, in swbd and fisher_swbd, expected one of"),
        ("swbd,fisher", "fisher", "both name fisher, expected one of them"),
        ("fisher_swbd", "fisher", "both name fisher, the second as part of fisher_swbd"),
        ("asrtool.local.corpora.fisher:Corpus", "fisher", "both name fisher, the second as part of asrtool.local"),
        ("swbd", "/a.txt,fisher,/a.txt", "lm.extra_text has a text twice, as /a.txt and /a.txt, expected one"),
        ("swbd", "fisher,fisher", "lm.extra_text has a text twice, as fisher and fisher"),
        ("swbd", "fisher,more.txt,fisher_swbd", "lm.extra_text has a text twice, as fisher and fisher_swbd"),
    ],
)
def test_no_speech_and_no_text_is_taken_twice(train: str, extra: str, fault: str) -> None:
    with pytest.raises(AsrtoolError, match=fault):
        check_conflicts(load_config([], [f"data.train={train}", "data.test=hub5", f"lm.extra_text=[{extra}]"]))
