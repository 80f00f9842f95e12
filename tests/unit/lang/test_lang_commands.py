"""The commands tokenizer, lang, lm and graph, one after the other as a recipe runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from asrtool.cli.graph import graph
from asrtool.cli.lang import lang
from asrtool.cli.lm import lm
from asrtool.cli.tokenizer import tokenizer
from asrtool.errors import AsrtoolError
from asrtool.lang.arpa import read_arpa
from asrtool.lang.graph import load_graph

TEXT = "yeah i know\nit's a nice day [laughter]\ni don't kn- know\nuh-huh\n"


def run(command: object, *arguments: str) -> None:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False, standalone_mode=False)  # type: ignore[arg-type]
    assert result.exit_code == 0, result.output


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sentences.txt").write_text(TEXT)
    return tmp_path


def test_the_four_commands_lead_from_sentences_to_a_graph(work: Path) -> None:
    run(tokenizer, "sentences.txt", "tokenizer", "--set", "tokenizer.vocab_size=40")
    run(lang, "sentences.txt", "tokenizer", "lang")
    run(lm, "--text", "sentences.txt", "--words", "lang/words.txt", "--arpa", "lm/G.arpa")
    run(graph, "lang", "lm/G.arpa", "graph")
    assert load_graph(work / "graph").num_states > 10
    assert sorted(path.name for path in work.iterdir()) == ["graph", "lang", "lm", "sentences.txt", "tokenizer"]


def test_lm_takes_several_texts_after_one_option_and_order_before_the_configuration(work: Path) -> None:
    (work / "more.txt").write_text("yeah yeah\n")
    run(lm, "--order", "2", "--text", "sentences.txt", "more.txt", "--arpa", "G.arpa", "--set", "lm.order=3")
    model = read_arpa(work / "G.arpa")
    assert model.order == 2
    yeah = model.words.index("yeah")
    assert any(row == [yeah, yeah] for row in model.spell(np.arange(model.starts[2], model.starts[3]), 2).tolist())


def test_min_counts_come_from_the_configuration(work: Path) -> None:
    run(lm, "--text", "sentences.txt", "--arpa", "G.arpa", "--set", "lm.min_counts=1,2")
    model = read_arpa(work / "G.arpa")
    assert model.starts[3] - model.starts[2] == 1  # "know </s>" alone was seen twice


@pytest.mark.parametrize("value", ["0", "2,1", "[]"])
def test_min_counts_that_make_no_sense_are_an_error(work: Path, value: str) -> None:
    with pytest.raises(AsrtoolError, match=r"lm\.min_counts"):
        run(lm, "--text", "sentences.txt", "--arpa", "G.arpa", "--set", f"lm.min_counts={value}")


def test_the_language_room_needs_neither_torch_nor_lhotse() -> None:
    code = (
        "import sys, asrtool.cli.tokenizer, asrtool.cli.lang, asrtool.cli.lm, asrtool.cli.graph\n"
        "heavy = {'torch', 'lhotse', 'numpy', 'kaldifst', 'sentencepiece'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "import asrtool.lang.tokenizer, asrtool.lang.lexicon, asrtool.lang.kneser_ney, asrtool.lang.graph\n"
        "assert not {'torch', 'lhotse'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
