"""The n-gram estimator against Chen and Goodman's formulas written out, against lmplz, and against what must hold."""

from __future__ import annotations

import math
import random
import shutil
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asrtool.errors import AsrtoolError
from asrtool.lang.arpa import read_arpa
from asrtool.lang.kneser_ney import FALLBACK, estimate, find_discounts
from asrtool.lang.ngram import Ngrams
from asrtool.lang.ngram_lm import NgramLm

Ngram = tuple[str, ...]
SMALL = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
TEXT = st.lists(st.lists(st.sampled_from("abcde"), min_size=1, max_size=8), min_size=1, max_size=12)


def write_text(path: Path, sentences: list[list[str]]) -> Path:
    path.write_text("".join(" ".join(words) + "\n" for words in sentences))
    return path


def make_sentences(num: int, num_words: int, seed: int) -> list[list[str]]:
    """Sentences whose words depend on the two before, with Zipf-like frequencies."""
    choose = random.Random(seed)
    sentences = []
    for _ in range(num):
        words: list[int] = []
        for _ in range(choose.randint(1, 12)):
            if words and choose.random() < 0.7:
                follow = random.Random(sum(words[-2:]) * 10 + choose.randint(0, 3))
            else:
                follow = choose
            words.append(min(int(follow.paretovariate(0.7)), num_words) - 1)
        sentences.append([f"w{word}" for word in words])
    return sentences


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


def log10_prob(lm: NgramLm, word: str, history: Ngram) -> float:
    state = 0
    for earlier in history:
        state = lm.start() if earlier == "<s>" else lm.step(state, earlier)[1]
    return lm.step(state, word)[0] / math.log(10)


def histories(sentences: list[list[str]], order: int) -> set[Ngram]:
    """All that occur, and some that do not."""
    found: set[Ngram] = {(), ("a", "e"), ("e", "e", "a")}
    for words in sentences:
        padded = ("<s>", *words)
        found |= {padded[max(0, i - order + 1) : i] for i in range(1, len(padded) + 1)}
    return found


@SMALL
@given(TEXT, st.integers(1, 4), st.lists(st.integers(1, 3), min_size=4, max_size=4).map(sorted))
def test_every_probability_is_that_of_the_formulas(
    tmp_path: Path, sentences: list[list[str]], order: int, min_counts: list[int]
) -> None:
    oracle = WrittenOut(sentences, order, min_counts)
    lm = NgramLm(estimate([write_text(tmp_path / "text", sentences)], None, order, min_counts))
    for history in histories(sentences, order):
        for word in oracle.words:
            assert log10_prob(lm, word, history) == pytest.approx(
                math.log10(oracle.prob(word, history[-order + 1 :] if order > 1 else ())), abs=1e-9
            )


def test_discounts_of_a_larger_text_are_estimated_and_lead_to_the_same_probabilities(tmp_path: Path) -> None:
    sentences = make_sentences(150, 40, seed=3)
    oracle = WrittenOut(sentences, 3, [1, 1, 1])
    assert all(oracle.discounts(n)[1:] != list(FALLBACK) for n in (2, 3))
    lm = NgramLm(estimate([write_text(tmp_path / "text", sentences)], None, 3, (1,)))
    for history in sorted(histories(sentences[:4], 3)):
        for word in sorted(oracle.words)[::5]:
            assert log10_prob(lm, word, history) == pytest.approx(math.log10(oracle.prob(word, history)), abs=1e-9)


@SMALL
@given(TEXT, st.integers(1, 5), st.integers(1, 3))
def test_probabilities_sum_to_one_after_every_history(
    tmp_path: Path, sentences: list[list[str]], order: int, min_count: int
) -> None:
    vocabulary = ["<eps>", "<unk>", "a", "b", "c", "never", "#0", "<s>", "</s>"]  # d and e are outside
    text = write_text(tmp_path / "text", sentences)
    lm = NgramLm(estimate([text], vocabulary, order, (1, min_count)))
    for history in histories(sentences, order):
        total = sum(10 ** log10_prob(lm, word, history) for word in ("<unk>", "a", "b", "c", "never", "</s>"))
        assert total == pytest.approx(1, abs=1e-9)


def test_discounts_of_chen_and_goodman_by_hand() -> None:
    # n1..n4 = 40, 20, 10, 5: Y = 40 / 80; D1 = 1 - 2 Y 20/40, D2 = 2 - 3 Y 10/20, D3 = 3 - 4 Y 5/10
    adjusted = np.repeat([0, 1, 2, 3, 4, 9], [7, 40, 20, 10, 5, 3])
    assert find_discounts(adjusted) == pytest.approx((0, 0.5, 1.25, 2.0))


@pytest.mark.parametrize("counts", [[1, 1, 1], [2, 2, 3, 3], [1] * 5 + [2] + [3] * 50])
def test_counts_that_tell_no_discounts_give_the_fallback(counts: list[int]) -> None:
    assert find_discounts(np.array(counts)) == (0.0, *FALLBACK)


def ngrams(model: Ngrams) -> set[Ngram]:
    found = set()
    for order in range(1, model.order + 1):
        nodes = np.arange(model.starts[order], model.starts[order + 1])
        found |= {tuple(model.words[word] for word in row) for row in model.spell(nodes, order).tolist()}
    return found


def test_ngrams_seen_too_seldom_are_left_out_and_words_are_not(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text", [["a", "b"], ["a", "b"], ["a", "c"]])
    found = ngrams(estimate([text], None, 3, (1, 2)))
    assert {gram for gram in found if len(gram) == 1} == {(word,) for word in ("<unk>", "<s>", "</s>", "a", "b", "c")}
    assert found >= {("<s>", "a"), ("a", "b"), ("b", "</s>"), ("<s>", "a", "b"), ("a", "b", "</s>")}
    assert not {("a", "c"), ("c", "</s>"), ("<s>", "a", "c")} & found


def test_words_outside_the_vocabulary_are_counted_as_unknown(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text", [["a", "x"], ["a", "y"], ["b"]])
    found = ngrams(estimate([text], ["<eps>", "<unk>", "a", "b", "#0", "<s>", "</s>"], 2, (1,)))
    assert ("a", "<unk>") in found
    assert not {("x",), ("y",), ("#0",), ("<eps>",)} & found


def test_several_files_are_one_text(tmp_path: Path) -> None:
    sentences = make_sentences(40, 10, seed=1)
    parts = [write_text(tmp_path / "1", sentences[:15]), write_text(tmp_path / "2", sentences[15:])]
    one, two = estimate([write_text(tmp_path / "all", sentences)], None, 3, (1,)), estimate(parts, None, 3, (1,))
    assert one.words == two.words
    assert np.array_equal(one.log10_prob, two.log10_prob)


def test_an_order_no_sentence_is_long_enough_for_is_left_out(tmp_path: Path) -> None:
    model = estimate([write_text(tmp_path / "text", [["a"], ["b"]])], None, 5, (1,))
    assert model.order == 3
    assert ("<s>", "a", "</s>") in ngrams(model)


def test_sentence_marks_in_the_text_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match="holds <s> or </s> as a word"):
        estimate([write_text(tmp_path / "text", [["<s>", "a"]])], None, 2, (1,))


@pytest.mark.skipif(not shutil.which("lmplz"), reason="KenLM's lmplz is not on PATH")
@pytest.mark.parametrize("prune", [None, [0, 0, 1], [0, 1, 1]])
def test_lmplz_estimates_the_same_model(tmp_path: Path, prune: list[int] | None) -> None:
    sentences = make_sentences(4000, 800, seed=7)
    text = write_text(tmp_path / "text", sentences[:3600])
    command = ["lmplz", "-o", "3", "-S", "100M", "-T", str(tmp_path)] + (["--prune", *map(str, prune)] if prune else [])
    with text.open() as source, (tmp_path / "lmplz.arpa").open("w") as sink:
        subprocess.run(command, stdin=source, stdout=sink, stderr=subprocess.PIPE, check=True)
    theirs = read_arpa(tmp_path / "lmplz.arpa")
    ours = estimate([text], None, 3, [count + 1 for count in prune] if prune else (1,))
    assert ngrams(ours) == ngrams(theirs)
    known = set(ours.words)
    their_lm, our_lm = NgramLm(theirs), NgramLm(ours)
    held_out = [[word if word in known else "<unk>" for word in words] for words in sentences[3600:]]
    num_words = sum(len(words) + 1 for words in held_out)
    our_cross_entropy = -sum(map(our_lm.log_prob, held_out)) / num_words
    their_cross_entropy = -sum(map(their_lm.log_prob, held_out)) / num_words
    # lmplz takes one unigram of its counts of counts by how often it was seen: its unigrams differ by a trace.
    assert math.exp(our_cross_entropy - their_cross_entropy) == pytest.approx(1, abs=1e-3)
