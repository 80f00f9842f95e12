"""The alignment against brute force and its own invariants; test_sctk.py compares it with sclite."""

from __future__ import annotations

import functools
import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asrtool.score.align import align_networks, align_words
from asrtool.score.network import Word, make_network, make_word, same_word

WORDS = st.lists(st.sampled_from("abcd"), max_size=7)


def least_cost(ref: list[str], hyp: list[str]) -> int:
    @functools.cache
    def cost(i: int, j: int) -> int:
        if not i or not j:
            return 3 * (i + j)
        same = 0 if ref[i - 1] == hyp[j - 1] else 4
        return min(cost(i - 1, j - 1) + same, cost(i - 1, j) + 3, cost(i, j - 1) + 3)

    return cost(len(ref), len(hyp))


@given(WORDS, WORDS)
def test_each_step_back_is_the_first_of_least_cost(ref: list[str], hyp: list[str]) -> None:
    """The order is substitution, insertion, deletion."""
    a, b = len(ref), len(hyp)
    for pair in reversed(align_words(ref, hyp).pairs):
        same = ref[a - 1 : a] == hyp[b - 1 : b]
        steps = {"C" if same else "S": (a - 1, b - 1), "I": (a, b - 1), "D": (a - 1, b)}
        costs = {"C": 0, "S": 4, "I": 3, "D": 3}
        cost = least_cost(ref[:a], hyp[:b])
        assert pair.kind == next(
            kind
            for kind, (row, column) in steps.items()
            if row >= 0 <= column and least_cost(ref[:row], hyp[:column]) + costs[kind] == cost
        )
        a, b = steps[pair.kind]
    assert (a, b) == (0, 0)


@given(WORDS, WORDS)
def test_the_alignment_spells_both_texts(ref: list[str], hyp: list[str]) -> None:
    alignment = align_words(ref, hyp)
    assert [pair.ref for pair in alignment.pairs if pair.ref] == ref
    assert [pair.hyp for pair in alignment.pairs if pair.hyp] == hyp
    assert alignment.counts.num_words == len(ref)
    assert all((pair.ref == pair.hyp) == (pair.kind == "C") for pair in alignment.pairs)


def test_plain_words_have_no_special_meaning() -> None:
    assert align_words(["@", "th-", "(uh)"], ["the"]).counts.num_words == 3
    assert align_words(["th-"], ["the"]).counts.sub == 1
    assert align_words(["(uh)"], []).counts.del_ == 1


def test_a_fragment_matches_the_word_it_begins_or_ends() -> None:
    assert same_word(make_word("th-"), make_word("the"))
    assert same_word(make_word("than"), make_word("-an"))
    assert not same_word(make_word("th-"), make_word("at"))
    assert not same_word(make_word("-"), make_word("at"))


def test_an_optional_word_counts_as_correct_when_left_out() -> None:
    counts = align_networks(make_network([make_word("a"), make_word("(uh)")]), make_network([make_word("a")])).counts
    assert (counts.corr, counts.num_words, counts.err) == (2, 2, 0)


def test_either_alternative_is_correct_and_the_empty_one_is_no_word() -> None:
    ref = make_network([make_word("a"), [[make_word("b"), make_word("c")], [make_word("@")]], make_word("d")])
    for text, num_words in (("a b c d", 4), ("a d", 2)):
        counts = align_networks(ref, make_network(Word(word) for word in text.split())).counts
        assert (counts.num_words, counts.err) == (num_words, 0)


@pytest.mark.parametrize(("last", "most_bytes"), [("a", 1), ("(a)", 10)])
def test_a_long_line_is_aligned_in_bounded_memory(last: str, most_bytes: int) -> None:
    rng = random.Random(1)
    ref, hyp = (make_network(map(make_word, [*rng.choices("abcdefgh", k=700), last])) for _ in range(2))
    tracemalloc.start()
    align_networks(ref, hyp)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak / (700 * 700) < most_bytes  # for each pair of words; 10,000 words take 40 MB, or 400
