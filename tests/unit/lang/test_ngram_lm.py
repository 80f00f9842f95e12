"""Scores word by word, against sums done by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from asrtool.lang.ngram.arpa import read_arpa
from asrtool.lang.ngram.disk_arrays import Scratch
from asrtool.lang.ngram.kneser_ney import number_words, read_text
from asrtool.lang.ngram.model import NgramLm

ARPA = """\\data\\
ngram 1=5
ngram 2=3
ngram 3=1

\\1-grams:
-1.5\t<unk>
-99\t<s>\t-0.4
-1.0\t</s>
-0.5\ta\t-0.2
-0.6\tb

\\2-grams:
-0.1\t<s> a\t-0.3
-0.2\ta b\t-0.7
-0.3\ta a

\\3-grams:
-0.05\t<s> a b

\\end\\
"""


@pytest.fixture
def lm(tmp_path: Path) -> NgramLm:
    (tmp_path / "G.arpa").write_text(ARPA)
    return NgramLm(read_arpa(tmp_path / "G.arpa"))


@pytest.mark.parametrize(
    ("words", "log10"),
    [
        ([], -0.4 - 1.0),
        (["a"], -0.1 - 0.3 - 0.2 - 1.0),  # </s> after "<s> a", "a" and nothing
        (["a", "b"], -0.1 - 0.05 - 0.7 - 1.0),  # "<s> a b" is no history, "a b" is
        (["a", "a"], -0.1 - 0.3 - 0.3 - 0.2 - 1.0),
        (["b", "a", "b"], -0.4 - 0.6 - 0.5 - 0.2 - 0.7 - 1.0),
        (["never"], -0.4 - 1.5 - 1.0),
    ],
)
def test_back_off_weights_are_added_on_the_way_down(lm: NgramLm, words: list[str], log10: float) -> None:
    assert lm.log_prob(words) == pytest.approx(log10 * math.log(10))
    assert lm.log_prob(words) == pytest.approx(log10 * math.log(10)), "the second time, from memory"


def test_histories_that_predict_the_same_are_one_state(lm: NgramLm) -> None:
    _, after_b = lm.step(lm.start(), "b")
    _, after_unknown = lm.step(after_b, "never")
    assert after_b == after_unknown
    _, after_a = lm.step(after_b, "a")
    assert after_a != lm.step(lm.start(), "a")[1]
    assert after_a == lm.step(after_a, "a")[1]


def test_an_unknown_word_of_a_model_without_unk_is_all_but_impossible(tmp_path: Path) -> None:
    (tmp_path / "G.arpa").write_text(ARPA.replace("ngram 1=5", "ngram 1=4").replace("-1.5\t<unk>\n", ""))
    lm = NgramLm(read_arpa(tmp_path / "G.arpa"))
    log_prob, state = lm.step(lm.start(), "never")
    assert log_prob == pytest.approx(-99 * math.log(10))
    assert lm.step(state, "b")[0] == pytest.approx(-0.6 * math.log(10))


def test_the_progress_of_a_text_has_a_total_without_empty_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "text").write_text("yes\n\nno thanks\n \nwell")
    with caplog.at_level("INFO"):
        read_text([tmp_path / "text"], number_words(None), Scratch(), grow=True)
    assert "text: 3/3 sentences, " in caplog.text
