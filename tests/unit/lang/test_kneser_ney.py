"""The n-gram estimator against Chen and Goodman's formulas and lmplz."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ngram_oracle import (
    PREDICTED,
    TEXT,
    VOCABULARY,
    Ngram,
    estimate,
    histories,
    in_memory,
    log10_prob,
    make_sentences,
    ngrams,
    prob,
    same_bits,
    write_text,
)

from asrtool.errors import AsrtoolError
from asrtool.lang.ngram.arpa import read_arpa
from asrtool.lang.ngram.kneser_ney import FALLBACK, find_discounts
from asrtool.lang.ngram.model import NgramLm
from asrtool.lang.text import read_sentences

SMALL = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)


class WrittenOut:
    """The formulas, one n-gram at a time."""

    def __init__(self, sentences: list[list[str]], order: int, min_counts: list[int]) -> None:
        self.order = order
        self.min_counts = min_counts
        padded = [("<s>", *words, "</s>") for words in sentences]
        self.seen = Counter(
            words[i : i + n] for words in padded for n in range(1, order + 1) for i in range(len(words) - n + 1)
        )
        self.words = {word for words in padded for word in words} - {"<s>"} | {"<unk>"}
        self.a = {gram: self.adjusted(gram) for gram in self.seen if gram != ("<s>",)}

    def adjusted(self, gram: Ngram) -> int:
        if len(gram) == self.order or gram[0] == "<s>":
            return self.seen[gram]
        return len({longer[0] for longer in self.seen if len(longer) == len(gram) + 1 and longer[1:] == gram})

    @cache  # noqa: B019
    def discounts(self, n: int) -> list[float]:
        num = Counter(count for gram, count in self.a.items() if len(gram) == n)
        try:
            y = num[1] / (num[1] + 2 * num[2])
            d = [0.0] + [j - (j + 1) * y * num[j + 1] / num[j] for j in (1, 2, 3)]
        except ZeroDivisionError:
            return [0.0, *FALLBACK]
        return d if num[3] and all(0 < d[j] <= j for j in (1, 2, 3)) else [0.0, *FALLBACK]

    def kept(self, gram: Ngram) -> bool:
        return self.seen[gram] >= self.min_counts[len(gram) - 1]

    @cache  # noqa: B019
    def prob(self, word: str, history: Ngram) -> float:
        followers = {gram: a for gram, a in self.a.items() if gram[:-1] == history}
        lower = self.prob(word, history[1:]) if history else 1 / len(self.words)
        if not followers:
            return lower
        discounts = self.discounts(len(history) + 1)
        left = {gram: a - discounts[min(a, 3)] if self.kept(gram) else 0.0 for gram, a in followers.items()}
        total = sum(followers.values())
        return left.get((*history, word), 0.0) / total + (1 - sum(left.values()) / total) * lower


@SMALL
@given(TEXT, st.integers(1, 4), st.lists(st.integers(1, 3), min_size=4, max_size=4).map(sorted))
def test_every_probability_is_that_of_the_formulas(
    tmp_path: Path, sentences: list[list[str]], order: int, min_counts: list[int]
) -> None:
    oracle = WrittenOut(sentences, order, min_counts)
    lm = NgramLm(in_memory(estimate(write_text(tmp_path / "text", sentences), None, order, min_counts)))
    for history in histories(sentences, order):
        for word in oracle.words:
            assert log10_prob(lm, word, history) == pytest.approx(
                math.log10(oracle.prob(word, history[-order + 1 :] if order > 1 else ())), abs=1e-9
            )


def test_discounts_of_a_larger_text_are_estimated_and_lead_to_the_same_probabilities(tmp_path: Path) -> None:
    sentences = make_sentences(150, 40, seed=3)
    oracle = WrittenOut(sentences, 3, [1, 1, 1])
    assert all(oracle.discounts(n)[1:] != list(FALLBACK) for n in (2, 3))
    lm = NgramLm(in_memory(estimate(write_text(tmp_path / "text", sentences), None, 3, (1,))))
    for history in sorted(histories(sentences[:4], 3)):
        for word in sorted(oracle.words)[::5]:
            assert log10_prob(lm, word, history) == pytest.approx(math.log10(oracle.prob(word, history)), abs=1e-9)


@SMALL
@given(TEXT, st.integers(1, 5), st.integers(1, 3))
def test_probabilities_sum_to_one_after_every_history(
    tmp_path: Path, sentences: list[list[str]], order: int, min_count: int
) -> None:
    text = write_text(tmp_path / "text", sentences)
    lm = NgramLm(in_memory(estimate(text, VOCABULARY, order, (1, min_count))))
    for history in histories(sentences, order):
        total = sum(prob(lm, word, history) for word in PREDICTED)
        assert total == pytest.approx(1, abs=1e-9)


def test_discounts_of_chen_and_goodman_by_hand() -> None:
    # n1..n4 = 40, 20, 10, 5: Y = 40 / 80; D1 = 1 - 2 Y 20/40, D2 = 2 - 3 Y 10/20, D3 = 3 - 4 Y 5/10
    assert find_discounts(np.array([7, 40, 20, 10, 5, 3])) == pytest.approx((0, 0.5, 1.25, 2.0))


@pytest.mark.parametrize("num_seen", [[0, 3, 0, 0, 0, 0], [0, 0, 2, 2, 0, 0], [0, 5, 1, 50, 0, 0]])
def test_counts_without_valid_discounts_give_the_fallback(num_seen: list[int]) -> None:
    assert find_discounts(np.array(num_seen)) == (0.0, *FALLBACK)


def test_ngrams_seen_too_seldom_are_left_out_and_words_are_not(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text", [["a", "b"], ["a", "b"], ["a", "c"]])
    found = ngrams(in_memory(estimate(text, None, 3, (1, 2))))
    assert {gram for gram in found if len(gram) == 1} == {(word,) for word in ("<unk>", "<s>", "</s>", "a", "b", "c")}
    assert found >= {("<s>", "a"), ("a", "b"), ("b", "</s>"), ("<s>", "a", "b"), ("a", "b", "</s>")}
    assert not {("a", "c"), ("c", "</s>"), ("<s>", "a", "c")} & found


def test_words_outside_the_vocabulary_are_counted_as_unknown(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text", [["a", "x"], ["a", "y"], ["b"]])
    found = ngrams(in_memory(estimate(text, ["<eps>", "<unk>", "a", "b", "#0", "<s>", "</s>"], 2, (1,))))
    assert ("a", "<unk>") in found
    assert not {("x",), ("y",), ("#0",), ("<eps>",)} & found


@SMALL
@given(
    TEXT, st.integers(1, 6), st.lists(st.integers(1, 3), min_size=2, max_size=2).map(sorted), st.sampled_from([0, 999])
)
def test_small_parts_and_numbers_too_large_to_pack_give_the_same_model(
    tmp_path: Path, sentences: list[list[str]], order: int, min_counts: list[int], largest: int
) -> None:
    text = write_text(tmp_path / "text", sentences)
    whole = estimate(text, None, order, min_counts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("asrtool.lang.ngram.kneser_ney.MIN_PART", 2)
        patch.setattr("asrtool.lang.ngram.kneser_ney.MAX_PARTS", 50)
        patch.setattr("asrtool.lang.ngram.trie.MAX_INT", largest)
        patch.setattr("asrtool.lang.ngram.trie.LOOKUP_BATCH", 3)
        patch.setattr("asrtool.lang.text.BLOCK_BYTES", 5)
        assert same_bits(estimate(text, None, order, min_counts), whole)


def test_an_order_no_sentence_is_long_enough_for_is_left_out(tmp_path: Path) -> None:
    model = estimate(write_text(tmp_path / "text", [["a"], ["b"]]), None, 5, (1,))
    assert len(model.levels) == 3
    assert ("<s>", "a", "</s>") in ngrams(in_memory(model))


@pytest.mark.parametrize("symbol", ["<s>", "</s>", "<eps>", "#0"])
@pytest.mark.parametrize("words", [None, ["a", "b"]])
def test_symbols_of_the_graph_in_the_text_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, symbol: str, words: list[str] | None
) -> None:
    monkeypatch.setattr("asrtool.lang.text.BLOCK_BYTES", 1)
    text = write_text(tmp_path / "text", [[f"{symbol}b"], [], ["a", symbol]])
    with pytest.raises(AsrtoolError, match=rf"text:3: holds {symbol} as a word; remove it"):
        estimate(text, words, 2, (1,))


def test_a_byte_order_mark_is_not_part_of_the_first_word(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes("\ufeffa b\nb \ufeffc\n".encode())
    assert estimate(tmp_path / "text", None, 2, (1,)).words[3:] == ["a", "b", "\ufeffc"]
    assert list(read_sentences(tmp_path / "text")) == [["a", "b"], ["b", "\ufeffc"]]


@pytest.mark.parametrize("content", ["\na b\n\n \nb c\n\n", "a b\r\n\r\nb\u3000c"])
@pytest.mark.parametrize("block_bytes", [1, 2**20])
def test_only_lines_with_words_are_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, block_bytes: int
) -> None:
    monkeypatch.setattr("asrtool.lang.text.BLOCK_BYTES", block_bytes)
    (tmp_path / "lines").write_bytes(content.encode())
    text = write_text(tmp_path / "text", [["a", "b"], ["b", "c"]])
    assert same_bits(estimate(tmp_path / "lines", None, 3, (1,)), estimate(text, None, 3, (1,)))


@pytest.mark.skipif(not shutil.which("lmplz"), reason="KenLM's lmplz is not on PATH")
@pytest.mark.parametrize("prune", [[0, 0, 0], [0, 0, 1], [0, 1, 1], [0, 0, 1, 1]])
def test_lmplz_estimates_the_same_model(tmp_path: Path, prune: list[int]) -> None:
    sentences = make_sentences(4000, 800, seed=7)
    text = write_text(tmp_path / "text", sentences[:3600])
    order = len(prune)
    command = ["lmplz", "-o", str(order), "-S", "100M", "-T", str(tmp_path), "--prune", *map(str, prune)]
    with text.open() as source, (tmp_path / "lmplz.arpa").open("w") as sink:
        subprocess.run(command, stdin=source, stdout=sink, stderr=subprocess.PIPE, check=True)
    theirs = read_arpa(tmp_path / "lmplz.arpa")
    ours = estimate(text, None, order, [count + 1 for count in prune])
    assert ngrams(in_memory(ours)) == ngrams(theirs)
    known = set(ours.words)
    their_lm, our_lm = NgramLm(theirs), NgramLm(in_memory(ours))
    held_out = [[word if word in known else "<unk>" for word in words] for words in sentences[3600:]]
    num_words = sum(len(words) + 1 for words in held_out)
    our_cross_entropy = -sum(map(our_lm.log_prob, held_out)) / num_words
    their_cross_entropy = -sum(map(their_lm.log_prob, held_out)) / num_words
    # lmplz takes one unigram of its counts of counts by how often it was seen: its unigrams differ by a trace.
    assert math.exp(our_cross_entropy - their_cross_entropy) == pytest.approx(1, abs=1e-3)
