"""The commands tokenizer, lang, lm and graph, one after the other as a recipe runs them."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import run_command, usage_error
from toy_graph import load_graph

from asrtool.errors import AsrtoolError
from asrtool.lang.ngram.arpa import read_arpa
from asrtool.lang.ngram.model import NgramLm

TEXT = "yeah i know\nit's a nice day [laughter]\ni don't kn- know\nuh-huh\n"


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sentences.txt").write_text(TEXT)
    return tmp_path


def test_the_four_commands_lead_from_sentences_to_a_graph(work: Path) -> None:
    run_command("tokenizer", "sentences.txt", "tokenizer", "--set", "tokenizer.vocab_size=40")
    run_command("lang", "sentences.txt", "tokenizer", "lang")
    run_command("lm", "--text", "sentences.txt", "--words", "lang/words.txt", "--arpa", "lm/G.arpa")
    run_command("graph", "lang", "lm/G.arpa", "graph")
    assert load_graph(work / "graph").num_states > 10
    assert sorted(path.name for path in work.iterdir()) == ["graph", "lang", "lm", "sentences.txt", "tokenizer"]


def test_lm_takes_several_texts_after_one_option_and_order_before_the_configuration(work: Path) -> None:
    (work / "more.txt").write_text("yeah yeah\n")
    run_command("lm", "--order", "2", "--text", "sentences.txt", "more.txt", "--arpa", "G.arpa", "--set", "lm.order=3")
    model = read_arpa(work / "G.arpa")
    assert model.order == 2
    yeah = np.array([model.words.index("yeah")])
    assert model.find(model.find(np.zeros(1, np.int64), yeah), yeah) > 0


def test_min_counts_come_from_the_configuration(work: Path) -> None:
    run_command("lm", "--text", "sentences.txt", "--arpa", "G.arpa", "--set", "lm.min_counts=1,2")
    model = read_arpa(work / "G.arpa")
    assert model.starts[3] - model.starts[2] == 1  # "know </s>" alone was seen twice


@pytest.fixture
def corpora(work: Path) -> Path:
    (work / "train").mkdir()
    (work / "train" / "sentences.txt").write_text("not read\n")
    (work / "train" / "sentences.fisher.txt").write_text("hello there\nhow are you\n" * 9 + "uh-huh yeah\n")
    (work / "train" / "sentences.swbd.txt").write_text("yeah i know\ni know\n" * 9 + "uh-huh there\n")
    (work / "dev.txt").write_text("i know\nyeah\nyeah there\nof course\n")
    return work


def logged_weights(log: str) -> dict[str, float]:
    return {name: float(weight) for name, weight in re.findall(r"(\S+): weight ([\d.]+)", log)}


def test_the_texts_of_a_folder_are_mixed_with_weights_tuned_on_held_out_text(corpora: Path) -> None:
    log = run_command("lm", "--text", "train", "--heldout", "dev.txt", "--arpa", "G.arpa").stderr
    weights = logged_weights(log)
    assert list(weights) == ["train/sentences.fisher.txt", "train/sentences.swbd.txt"]
    assert weights["train/sentences.swbd.txt"] > 0.5 > weights["train/sentences.fisher.txt"] > 0
    assert "perplexity of dev.txt" in log
    model = read_arpa(corpora / "G.arpa")
    assert {"hello", "know"} < set(model.words)
    assert not {"not", "course"} & set(model.words)
    unigrams = slice(model.starts[1], model.starts[2])
    probs = 10 ** model.log10_prob[unigrams]
    assert probs.sum() == pytest.approx(1, abs=1e-4)


def test_extra_texts_are_mixed_in_and_their_words_are_in_the_lexicon(corpora: Path) -> None:
    (corpora / "extra").mkdir()
    (corpora / "extra" / "1.fisher.txt").write_text("of course\nof course there\n" * 9)
    (corpora / "extra" / "2.old.txt").write_text("an earlier setting\n")
    extra = ("--extra", "extra", "--set", "lm.extra_text=fisher")
    done = run_command("lm", "--text", "train", "--heldout", "dev.txt", *extra, "--arpa", "G.arpa")
    weights = logged_weights(done.stderr)
    assert list(weights)[2:] == ["extra/1.fisher.txt"]
    assert weights["extra/1.fisher.txt"] > 0.1
    advice = "hardly counts, as the held-out text is unlike it; --set lm.mix=false takes all texts as one"
    assert re.findall(r"WARNING (.*)", done.stderr) == [f"train/sentences.fisher.txt: {advice}"]
    model = NgramLm(read_arpa(corpora / "G.arpa"))
    run_command("lm", "--text", "train", "--heldout", "dev.txt", "--extra", "extra", "--arpa", "without.arpa")
    assert not {"course", "earlier"} & set(read_arpa(corpora / "without.arpa").words)
    assert model.log_prob(["of", "course"]) > model.log_prob(["course", "of"]) + 1
    run_command("tokenizer", "train/sentences.swbd.txt", "tokenizer", "--set", "tokenizer.vocab_size=36")
    run_command("lang", "train/sentences.swbd.txt", "tokenizer", "lang", *extra)
    words = (corpora / "lang" / "words.txt").read_text().split()
    assert {"course", "know"} < set(words)
    assert "earlier" not in words


def test_without_lm_mix_several_texts_are_one(corpora: Path) -> None:
    run_command("lm", "--text", "train", "--heldout", "dev.txt", "--arpa", "one.arpa", "--set", "lm.mix=false")
    texts = ("train/sentences.fisher.txt", "train/sentences.swbd.txt")
    run_command("lm", "--text", texts[0], "--text", texts[1], "--arpa", "two.arpa")
    assert (corpora / "one.arpa").read_bytes() == (corpora / "two.arpa").read_bytes()


def test_pruning_leaves_out_ngrams_and_keeps_the_large_model_where_asked(corpora: Path) -> None:
    run_command("lm", "--text", "train", "--heldout", "dev.txt", "--arpa", "lm/all.arpa")
    run_command("lm", "--text", "train", "--heldout", "dev.txt", "--arpa", "lm/few.arpa", "--set", "lm.prune=0.001")
    every, few = read_arpa(corpora / "lm" / "all.arpa"), read_arpa(corpora / "lm" / "few.arpa")
    assert every.starts[-1] > few.starts[-1] > few.starts[2]
    assert sorted(path.name for path in (corpora / "lm").glob("[!.]*")) == ["all.arpa", "few.arpa"]
    large = ("--set", "lm.prune=0.001", "--set", "lm.large=true")
    run_command("lm", "--text", "train", "--heldout", "dev.txt", "--arpa", "both/G.arpa", *large)
    assert (corpora / "both" / "large.arpa").read_bytes() == (corpora / "lm" / "all.arpa").read_bytes()
    assert (corpora / "both" / "G.arpa").read_bytes() == (corpora / "lm" / "few.arpa").read_bytes()


def test_a_folder_without_texts_is_an_error(corpora: Path) -> None:
    (corpora / "empty").mkdir()
    with pytest.raises(AsrtoolError, match=r"empty: holds no sentences\.CORPUS\.txt"):
        run_command("lm", "--text", "empty", "--arpa", "G.arpa")


@pytest.mark.parametrize("place", [".", "train"])
def test_a_folder_is_no_place_for_a_model(corpora: Path, place: str) -> None:
    before = sorted(corpora.rglob("*"))
    for words in (["lm", "--text", "dev.txt", "--arpa", place], ["average", "train", place]):
        assert "is a directory" in usage_error(*words)
    assert sorted(corpora.rglob("*")) == before


@pytest.mark.parametrize("place", ["dev.txt", "./train/../dev.txt", "train/sentences.swbd.txt"])
def test_a_model_does_not_overwrite_what_it_is_made_of(corpora: Path, place: str) -> None:
    before = (corpora / place).read_bytes()
    with pytest.raises(AsrtoolError, match=r"txt: exists, and would be replaced although"):
        run_command("lm", "--text", "train", "--heldout", "dev.txt", "--arpa", place)
    assert (corpora / place).read_bytes() == before


def test_a_place_in_a_file_is_refused_before_a_model_is_made(work: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"G\.arpa: cannot be written, sentences\.txt is not a folder"):
        run_command("lm", "--text", "sentences.txt", "--arpa", "sentences.txt/G.arpa")
    assert [path.name for path in work.iterdir()] == ["sentences.txt"]


def test_neither_does_the_model_before_pruning(corpora: Path) -> None:
    (corpora / "large.arpa").write_text("a text of an odd name\n")
    with pytest.raises(AsrtoolError, match=r"large\.arpa: exists, and would be replaced although"):
        run_command(
            "lm", "--text", "large.arpa", "--arpa", "G.arpa", "--set", "lm.large=true", "--set", "lm.prune=1e-8"
        )


@pytest.mark.parametrize("value", ["lm.prune=-1", "lm.min_counts=0", "lm.min_counts=2,1", "lm.min_counts=[]"])
def test_settings_that_make_no_sense_are_an_error(work: Path, value: str) -> None:
    with pytest.raises(AsrtoolError, match=value.split("=")[0]):
        run_command("lm", "--text", "sentences.txt", "--arpa", "G.arpa", "--set", value)


def test_a_disk_too_full_for_temporary_files_is_one_line(work: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, hard))
    try:
        with pytest.raises(AsrtoolError, match=r"G\.arpa: cannot be written, file too large"):
            run_command("lm", "--text", "sentences.txt", "--arpa", "G.arpa")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_the_language_room_needs_neither_torch_nor_lhotse() -> None:
    code = (
        "import sys, asrtool.cli.lang\n"
        "heavy = {'torch', 'lhotse', 'numpy', 'kaldifst', 'sentencepiece'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "import asrtool.lang.tokenizer, asrtool.lang.lexicon\n"
        "import asrtool.lang.ngram.kneser_ney, asrtool.lang.graph\n"
        "assert not {'torch', 'lhotse'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
