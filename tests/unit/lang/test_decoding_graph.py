"""HLG against brute force: what it accepts, which words it writes, and at what weight."""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import kaldifst
import numpy as np
import pytest
from toy_graph import (
    LEXICON,
    TOKENS,
    WORDS,
    Labels,
    accept,
    arcs_of,
    load_graph,
    make_sentences,
    make_toy_tree,
    write_language,
    write_toy,
)

from asrtool.errors import AsrtoolError
from asrtool.lang.graph import build_graph, make_grammar_fst
from asrtool.lang.graph_file import HEADER, read_graph
from asrtool.lang.ngram.arpa import read_arpa
from asrtool.lang.ngram.estimate import build_lm
from asrtool.lang.ngram.model import NgramLm, Ngrams
from asrtool.lang.text import read_symbols
from asrtool.lang.tokenizer import Tokenizer
from asrtool.models.objectives.topology import CtcTopology, LeafTopology
from asrtool.settings.lang import Lm


def collapse(labels: Sequence[int]) -> Labels:
    """The tokens of a CTC path: repeats joined, then blanks (label 1) removed."""
    return tuple(label for label, _ in itertools.groupby(labels) if label != 1)


def sentences_of(tokens: Labels) -> Iterator[tuple[str, ...]]:
    """Every sequence of words that has `tokens`."""
    if not tokens:
        yield ()
    for word, tokenizations in LEXICON.items():
        for pieces in tokenizations:
            begin = tuple(map(TOKENS.index, pieces.split()))
            if tokens[: len(begin)] == begin:
                yield from ((word, *others) for others in sentences_of(tokens[len(begin) :]))


def lowest_weight(model: Ngrams, words: Sequence[str]) -> float:
    """-ln p of a sentence when an automaton may back off although it knows the longer n-gram.

    That can be cheaper: from a shorter history the words that follow may need no back-off.
    """
    ids = {word: i for i, word in enumerate(model.words)}
    costs = {int(model.find(np.array([0]), np.array([ids["<s>"]]))[0]): 0.0}
    for word in (*words, "</s>"):
        for state in sorted(costs, reverse=True):
            cost = costs[state]
            while state:
                cost -= model.log10_backoff[state]
                state = int(model.suffix[state])
                costs[state] = min(costs.get(state, math.inf), cost)
        nodes = {state: int(model.find(np.array([state]), np.array([ids[word]]))[0]) for state in costs}
        after: dict[int, float] = {}
        for state, node in nodes.items():
            if node:
                after[node] = min(after.get(node, math.inf), costs[state] - float(model.log10_prob[node]))
        costs = after
    return min(costs.values()) * math.log(10)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    write_toy(folder)
    build_graph(folder / "lang", folder / "G.arpa", folder / "graph", CtcTopology().transducer)
    return folder


def test_every_short_frame_sequence_gives_the_words_of_its_tokens_at_the_weight_of_the_lm(toy: Path) -> None:
    graph, model = load_graph(toy / "graph"), read_arpa(toy / "G.arpa")
    weight = cache(lambda words: lowest_weight(model, words))
    num_accepted = 0
    for length in range(6):
        for labels in itertools.product(range(1, 5), repeat=length):
            found = accept(graph, labels)
            sentences = sentences_of(collapse(labels))
            expected = {tuple(map(WORDS.index, words)): weight(words) for words in sentences}
            assert found == pytest.approx(expected, abs=1e-3), labels
            num_accepted += len(found)
    assert num_accepted > 1000


def test_a_pronunciation_added_by_hand_may_be_that_of_more_words_than_any_before(tmp_path: Path) -> None:
    write_toy(tmp_path)
    with (tmp_path / "lang" / "lexicon.txt").open("a") as lexicon:
        lexicon.write("a z\nab z\n")
    build_graph(tmp_path / "lang", tmp_path / "G.arpa", tmp_path / "graph", CtcTopology().transducer)
    model = read_arpa(tmp_path / "G.arpa")
    expected = {(WORDS.index(word),): lowest_weight(model, (word,)) for word in LEXICON}
    assert accept(load_graph(tmp_path / "graph"), [TOKENS.index("z")]) == pytest.approx(expected, abs=1e-3)


def test_no_disambiguation_symbol_is_left_and_arcs_are_sorted(toy: Path) -> None:
    graph = load_graph(toy / "graph")
    for state in range(graph.num_states):
        labels = [read for read, _, _, _ in arcs_of(graph, state)]
        assert labels == sorted(labels)
        assert set(labels) <= {0, 1, 2, 3, 4}
        assert all(0 <= write < WORDS.index("#0") for _, write, _, _ in arcs_of(graph, state))


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer, a trigram and its graph for a few hundred words."""
    folder = tmp_path_factory.mktemp("language")
    write_language(folder)
    build_graph(folder / "lang", folder / "G.arpa", folder / "graph", CtcTopology().transducer)
    return folder


def test_the_weight_of_a_tokenized_sentence_is_its_arpa_score(language: Path) -> None:
    graph, lm = load_graph(language / "graph"), NgramLm(read_arpa(language / "G.arpa"))
    words = read_symbols(language / "graph" / "words.txt", "lang")
    tokenizer = Tokenizer.load(language / "tokenizer")
    for sentence in make_sentences(language, 60):
        frames = [label for token in tokenizer.encode(" ".join(sentence)) for label in (token + 1, token + 1, 1)]
        expected = {tuple(map(words.index, sentence)): -lm.log_prob(sentence)}
        assert accept(graph, frames) == pytest.approx(expected, abs=1e-3)


def test_a_sentence_with_a_word_outside_the_lexicon_is_rejected(language: Path) -> None:
    graph, tokenizer = load_graph(language / "graph"), Tokenizer.load(language / "tokenizer")
    known = set(read_symbols(language / "lang" / "words.txt", "lang"))
    outside = sorted(set((language / "text").read_text().split()) - known)
    assert outside
    for word in outside:
        assert accept(graph, [token + 1 for token in tokenizer.encode(word)]) == {}


def test_the_grammar_is_the_one_kaldilm_makes(toy: Path) -> None:
    kaldilm = pytest.importorskip("kaldilm")
    words_txt = str(toy / "lang" / "words.txt")
    theirs = kaldifst.compile(
        kaldilm.arpa2fst(str(toy / "G.arpa"), disambig_symbol="#0", read_symbol_table=words_txt, max_arpa_warnings=0)
    )
    grammar = make_grammar_fst(read_arpa(toy / "G.arpa"), {word: i for i, word in enumerate(WORDS)})
    ours = kaldifst.compile(grammar, acceptor=False)
    for length in range(4):
        for labels in itertools.product((1, 2, 3, 4, 5, 6), repeat=length):  # <unk>, the words, #0
            assert accept(ours, labels) == pytest.approx(accept(theirs, labels), abs=1e-4), labels


def test_words_of_the_arpa_file_that_the_lexicon_lacks_are_passed_over(toy: Path, tmp_path: Path) -> None:
    build_lm([toy / "text"], tmp_path / "G.arpa", Lm())
    model = read_arpa(tmp_path / "G.arpa")
    assert "never" in model.words
    build_graph(toy / "lang", tmp_path / "G.arpa", tmp_path / "graph", CtcTopology().transducer)
    found = accept(load_graph(tmp_path / "graph"), (TOKENS.index("x"), TOKENS.index("y")))
    assert found == pytest.approx({(WORDS.index("ab"),): lowest_weight(model, ["ab"])}, abs=1e-3)


def spoil(toy: Path, folder: Path, name: str, old: str, new: str) -> None:
    (folder / "lang").mkdir()
    for file in ("lang/words.txt", "lang/tokens.txt", "lang/lexicon.txt", "G.arpa"):
        text = (toy / file).read_text()
        if file == name:
            assert old in text
            text = text.replace(old, new)
        (folder / file).write_text(text)


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("lang/words.txt", "#0 6", "#9 6", r"words\.txt: no symbol #0"),
        ("lang/words.txt", "a 2", "a 7", r"words\.txt:3: 'a 7', expected a symbol and 2"),
        ("lang/tokens.txt", "<blk> 1", "<b> 1", r"tokens\.txt: no symbol <blk>"),
        ("lang/lexicon.txt", "ab x y", "ab x q", r"lexicon\.txt:3: token q is not in tokens\.txt"),
        ("G.arpa", "\\end\\", "", r"G\.arpa:\d+: the file ends"),
        ("G.arpa", "</s>", "</S>", r"G\.arpa: no </s> among the unigrams"),
    ],
)
def test_inputs_that_are_malformed_or_do_not_fit_are_named(
    toy: Path, tmp_path: Path, name: str, old: str, new: str, message: str
) -> None:
    spoil(toy, tmp_path, name, old, new)
    with pytest.raises(AsrtoolError, match=message):
        build_graph(tmp_path / "lang", tmp_path / "G.arpa", tmp_path / "graph", CtcTopology().transducer)
    assert not (tmp_path / "graph").exists()


def test_an_ngram_without_a_word_of_the_lexicon_is_an_error(toy: Path, tmp_path: Path) -> None:
    (tmp_path / "G.arpa").write_text("\\data\\\nngram 1=3\n\n\\1-grams:\n-1 <s>\n-0.5 </s>\n-0.5 other\n\n\\end\\\n")
    with pytest.raises(AsrtoolError, match=r"G\.arpa: predicts no word of"):
        build_graph(toy / "lang", tmp_path / "G.arpa", tmp_path / "graph", CtcTopology().transducer)


def test_a_missing_symbol_table_is_an_error(toy: Path, tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"words\.txt: cannot be read"):
        build_graph(tmp_path, toy / "G.arpa", tmp_path / "graph", CtcTopology().transducer)


def test_a_missing_and_a_cut_graph_are_errors(toy: Path, tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"HLG\.fst: no decoding graph"):
        load_graph(tmp_path)
    content = (toy / "graph" / "HLG.fst").read_bytes()
    for length in (0, 10, len(content) // 2, len(content) - 1):
        (tmp_path / "HLG.fst").write_bytes(content[:length])
        with pytest.raises(AsrtoolError, match=r"HLG\.fst: not a complete graph"):
            load_graph(tmp_path)


def test_a_changed_byte_of_a_graph_is_an_error_or_another_graph_and_no_crash(toy: Path, tmp_path: Path) -> None:
    content = (toy / "graph" / "HLG.fst").read_bytes()
    choose, num_refused = random.Random(3), 0
    for at in [*range(HEADER.size), *choose.sample(range(HEADER.size, len(content)), 100)]:
        changed = bytearray(content)
        changed[at] ^= choose.randint(1, 255)
        (tmp_path / "HLG.fst").write_bytes(changed)
        try:
            graph = load_graph(tmp_path)
        except AsrtoolError:
            num_refused += 1
        else:
            assert all(0 <= to < graph.num_states for s in range(graph.num_states) for *_, to in arcs_of(graph, s))
    assert num_refused > 100


@pytest.mark.parametrize(
    ("field", "value"), [("input", -1), ("output", -1), ("to", -1), ("to", 10**6), ("cost", np.nan), ("cost", -np.inf)]
)
def test_an_arc_that_cannot_be_is_an_error(toy: Path, tmp_path: Path, field: str, value: float) -> None:
    arcs = read_graph(toy / "graph").arcs.copy()
    arcs[field][len(arcs) // 2] = value
    content = (toy / "graph" / "HLG.fst").read_bytes()
    (tmp_path / "HLG.fst").write_bytes(content[: -arcs.nbytes] + arcs.tobytes())
    with pytest.raises(AsrtoolError, match=r"HLG\.fst: not a complete graph; run `asrtool graph` again"):
        load_graph(tmp_path)


def test_a_backend_that_is_not_installed_is_named_with_where_it_is(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "k2", None)  # as if it were not there
    with pytest.raises(AsrtoolError, match=r"graph\.backend = k2 needs the package k2.*make test-k2"):
        build_graph(toy / "lang", toy / "G.arpa", tmp_path / "graph", CtcTopology().transducer, "k2")


@pytest.mark.no_room
def test_a_full_disk_is_an_error_and_leaves_no_graph(toy: Path, tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"HLG\.fst: cannot be written"):
        build_graph(toy / "lang", toy / "G.arpa", tmp_path / "graph", CtcTopology().transducer)
    assert not list(tmp_path.iterdir())


# Graphs of a hybrid model

NUM_TOKENS = 4  # silence, x, y and z


TREE = make_toy_tree()


def tokens_of(leaves: Sequence[int]) -> Labels | None:
    """The tokens, as labels of the tokenizer's table, that a sequence of leaves says; None where none do."""
    tokens: list[int] = []
    left = before = 0  # the left context of the token that is said, and that token
    for leaf in leaves:
        firsts = [token for token in range(1, NUM_TOKENS) if TREE.leaves_VV2[before, token, 0] == leaf]
        if leaf == 0:
            before = 0
        elif firsts:
            left, before = before, firsts[0]
            tokens.append(before + 1)
        elif before == 0 or TREE.leaves_VV2[left, before, 1] != leaf:
            return None
    return tuple(tokens)


@pytest.fixture(scope="module")
def hybrid(toy: Path) -> Path:
    build_graph(toy / "lang", toy / "G.arpa", toy / "hybrid", LeafTopology(TREE, 1.0).transducer)
    return toy


def test_h_reads_exactly_the_leaves_of_tokens_each_in_one_way() -> None:
    graph = kaldifst.compile(LeafTopology(TREE, 1.0).transducer([1, 2, 3]), acceptor=False)
    num_accepted = 0
    for length in range(5):
        for leaves in itertools.product(range(10), repeat=length):
            tokens = tokens_of(leaves)
            assert accept(graph, [leaf + 1 for leaf in leaves]) == ({} if tokens is None else {tokens: 0.0}), leaves
            num_accepted += tokens is not None
    assert 500 < num_accepted < 5000


def test_the_graph_gives_the_words_of_leaves_at_the_weight_of_the_lm(hybrid: Path) -> None:
    graph, model, num_accepted = load_graph(hybrid / "hybrid"), read_arpa(hybrid / "G.arpa"), 0
    weight = cache(lambda words: lowest_weight(model, words))
    for length in range(5):
        for leaves in itertools.product(range(10), repeat=length):
            tokens = tokens_of(leaves)
            sentences = [] if tokens is None else sentences_of(tokens)
            expected = {tuple(map(WORDS.index, words)): weight(words) for words in sentences}
            found = accept(graph, [leaf + 1 for leaf in leaves])
            assert found == pytest.approx(expected, abs=1e-3), leaves
            num_accepted += len(found)
    assert num_accepted > 500
