"""ARPA files: what is written is read back, what is malformed is named, and scores word by word."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ngram_oracle import estimate, in_memory

import asrtool
from asrtool.errors import AsrtoolError
from asrtool.lang.ngram.arpa import read_arpa, write_arpa
from asrtool.lang.ngram.model import NgramLm
from asrtool.lang.ngram.trie import Level, Trie

GOOD = """a comment above the data

\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-99\t<s>\t-0.3
-1.0\t</s>
-0.5\ta\t-0.2
-0.6\tb

\\2-grams:
-0.1\t<s> a
-0.2\ta </s>

\\end\\
"""


@pytest.fixture
def arpa(tmp_path: Path) -> Path:
    path = tmp_path / "G.arpa"
    path.write_text(GOOD)
    return path


def test_values_are_read_as_written(arpa: Path) -> None:
    model = read_arpa(arpa)
    assert model.words == ["<s>", "</s>", "a", "b"]
    assert model.order == 2
    assert model.log10_prob[1:].tolist() == [-99, -1.0, -0.5, -0.6, -0.1, -0.2]
    assert model.log10_backoff[1:].tolist() == [-0.3, 0, -0.2, 0, 0, 0]
    assert model.find(np.array([1, 3]), np.array([2, 1])).tolist() == [5, 6]  # a after <s>, </s> after a


SENTENCE = st.lists(st.sampled_from([*"abcd", "a\0", "\u00e4", "\u20ac\u0416", 9 * "x"]), min_size=1, max_size=7)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(st.lists(SENTENCE, min_size=1, max_size=6), st.integers(1, 4))
def test_a_model_is_read_back_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentences: list[list[str]], order: int
) -> None:
    monkeypatch.setattr("asrtool.lang.ngram.arpa.CHUNK", 5)
    monkeypatch.setattr("asrtool.lang.ngram.arpa.MAX_WORD_BYTES", 2)
    (tmp_path / "text").write_text("".join(" ".join(words) + "\n" for words in sentences))
    model = estimate(tmp_path / "text", None, order, (1,))
    write_arpa(tmp_path / "lm.arpa", model)
    again, expected = read_arpa(tmp_path / "lm.arpa"), in_memory(model)
    assert again.words == expected.words
    assert again.starts == expected.starts
    assert np.array_equal(again.parent, expected.parent)
    assert np.array_equal(again.word, expected.word)
    assert np.allclose(again.log10_prob, expected.log10_prob, atol=1e-6)
    assert np.allclose(again.log10_backoff, expected.log10_backoff, atol=1e-6)


def test_weights_are_written_with_their_sign_or_left_out(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a b\n")
    model = estimate(tmp_path / "text", None, 2, (1,))
    weights = np.array([10**0.25, 1, 1e-99, 1 - 1e-9, 12345.6])
    model.levels[0] = dataclasses.replace(model.levels[0], backoff=weights)
    write_arpa(tmp_path / "lm.arpa", model)
    ends = [line.split("\t")[2:] for line in (tmp_path / "lm.arpa").read_text().split("\n")[6:11]]
    assert ends == [["0.250000"], [], ["-99.000000"], ["-0.000000"], ["4.091512"]]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\\data\\\n", "", r"arpa:\d+: the file ends, expected \\data\\"),
        ("ngram 1=4\nngram 2=2\n", "", r"arpa:5: '\\\\1-grams:', expected ngram 1=COUNT"),
        ("ngram 2=2", "ngram 3=2", r"arpa:5: 'ngram 3=2', expected ngram 2=COUNT or \\1-grams:"),
        ("ngram 1=4", "ngram 1=5", r"arpa:12: '', expected 1-gram 5 of 5: log10 probability, 1 words"),
        ("ngram 1=4", "ngram 1=3", r"arpa:11: .*, expected \\2-grams:"),
        ("-0.5\ta", "-0.5x\ta", r"arpa:10: .*, expected a log10 probability, 0 or less"),
        ("-0.5\ta", "0.5\ta", r"arpa:10: .*, expected a log10 probability, 0 or less"),
        ("-0.5\ta", "nan\ta", r"arpa:10: .*, expected a log10 probability, 0 or less"),
        ("a\t-0.2", "a\t-o.2", r"arpa:10: .*, expected a number from -1000 to 1000 as back-off weight"),
        ("<s>\t-0.3", "<s>\t-inf", r"arpa:8: .*, expected a number from -1000 to 1000 as back-off weight"),
        ("a\t-0.2", "a\tinf", r"arpa:10: .*, expected a number from -1000 to 1000 as back-off weight"),
        ("a\t-0.2", "a\t-1e39", r"arpa:10: .*, expected a number from -1000 to 1000 as back-off weight"),
        ("a\t-0.2", "a\tnan", r"arpa:10: .*, expected a number from -1000 to 1000 as back-off weight"),
        ("-0.5\ta\t-0.2", "-0.5", r"arpa:10: '-0.5', expected 1-gram 3 of 4"),
        ("-0.6\tb", "-0.6\ta", r"arpa:11: .*, expected each unigram once, found a twice"),
        ("a </s>", "c </s>", r"arpa:15: .*, expected words among the unigrams, c is not"),
        ("a </s>", "<s> a", r"arpa:15: expected each n-gram once, found this one twice"),
        ("\\2-grams:", "\\3-grams:", r"arpa:13: '\\\\3-grams:', expected \\2-grams:"),
        ("\\end\\\n", "", r"arpa:\d+: the file ends, expected \\end\\"),
        ("-0.2\ta </s>\n\n\\end\\\n", "-0.2\ta <", r"arpa:15: .*expected words among the unigrams, < is not"),
        ("-0.2\ta </s>\n\n\\end\\\n", "", r"arpa:15: '', expected 2-gram 2 of 2"),
    ],
)
def test_a_malformed_file_is_an_error_with_its_line(arpa: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    arpa.write_text(GOOD.replace(old, new))
    with pytest.raises(AsrtoolError, match=message):
        read_arpa(arpa)


def test_a_probability_of_zero_may_be_written_as_infinite(arpa: Path) -> None:
    arpa.write_text(GOOD.replace("-99\t<s>", "-inf\t<s>"))
    assert read_arpa(arpa).log10_prob[1] == -math.inf


def test_an_ngram_without_its_history_is_an_error_with_its_line(tmp_path: Path) -> None:
    text = GOOD.replace("ngram 2=2", "ngram 2=2\nngram 3=2")
    text = text.replace("\\end\\", "\\3-grams:\n-0.1\t<s> a </s>\n-0.1\t<s> b </s>\n\n\\end\\")
    (tmp_path / "G.arpa").write_text(text)
    with pytest.raises(AsrtoolError, match=r"arpa:20: expected its first words among the shorter n-grams"):
        read_arpa(tmp_path / "G.arpa")


@given(st.binary(max_size=60), st.integers(0, len(GOOD)), st.integers(0, 20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_damage_is_either_read_or_the_one_error(tmp_path: Path, junk: bytes, at: int, lost: int) -> None:
    (tmp_path / "G.arpa").write_bytes(GOOD.encode()[:at] + junk + GOOD.encode()[at + lost :])
    with contextlib.suppress(AsrtoolError):
        assert np.all(read_arpa(tmp_path / "G.arpa").log10_prob <= 0)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"G\.arpa: cannot be read"):
        read_arpa(tmp_path / "G.arpa")


@pytest.mark.no_room
def test_a_full_disk_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("the quick brown fox jumps over the lazy dog\n" * 5)
    model = estimate(tmp_path / "text", None, 4, (1,))
    with pytest.raises(AsrtoolError, match=r"lm\.arpa: cannot be written"):
        write_arpa(tmp_path / "lm.arpa", model)
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


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
    assert lm.log_prob(" ".join(words)) == pytest.approx(log10 * math.log(10)), "the second time, from memory"


def test_the_perplexity_of_sentences_counts_their_ends(tmp_path: Path) -> None:
    (tmp_path / "G.arpa").write_text(ARPA)
    lm = asrtool.load_lm(tmp_path / "G.arpa")
    log10 = -0.1 - 0.05 - 0.7 - 1.0 + -0.4 - 1.5 - 1.0  # of both sentences, as above
    assert lm.perplexity(["a b", "never"]) == pytest.approx(10 ** (-log10 / 5))
    assert lm.perplexity("a b") == lm.perplexity(["a b"])
    with pytest.raises(AsrtoolError, match="a text without sentences has no perplexity"):
        lm.perplexity([])


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


def test_the_writer_holds_a_large_vocabulary_once(tmp_path: Path) -> None:
    num = 200_000
    rows = np.arange(num, dtype=np.int32)
    model = Trie([f"w{row}" for row in rows], [Level(np.zeros_like(rows), rows, np.full(num, 0.1), np.ones(num))])
    tracemalloc.start()
    try:
        write_arpa(tmp_path / "G.arpa", model)
        assert tracemalloc.get_traced_memory()[1] < 77 * num  # bytes a word: 63, with a copy 91
    finally:
        tracemalloc.stop()
