"""Small languages to make decoding graphs of, and what a graph accepts, by following all its paths."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import kaldifst
import numpy as np

from asrtool.lang.graph_file import load_fst, read_graph
from asrtool.lang.lexicon import build_lang
from asrtool.lang.ngram.estimate import build_lm
from asrtool.lang.text import read_symbols
from asrtool.lang.tokenizer import train_tokenizer
from asrtool.models.objectives.decision_tree import Tree
from asrtool.settings.lang import Lm

TOKENS = ["<eps>", "<blk>", "x", "y", "z", "#0", "#1", "#2"]
# A pronunciation that begins another, two words with one, one word with two, one token twice in a row.
LEXICON = {"a": ["x", "z z"], "ab": ["x y"], "c": ["z"], "d": ["z"]}
WORDS = ["<eps>", "<unk>", *LEXICON, "#0", "<s>", "</s>"]
SENTENCES = ["a c", "ab a", "d", "c c a", "a ab d", "c never", "a c ab"]
Labels = tuple[int, ...]


def write_toy(folder: Path) -> None:
    """`lang/` and `G.arpa` of four words whose pronunciations are as awkward as they can be."""
    lang = folder / "lang"
    lang.mkdir()
    (lang / "words.txt").write_text("".join(f"{word} {i}\n" for i, word in enumerate(WORDS)))
    (lang / "tokens.txt").write_text("".join(f"{token} {i}\n" for i, token in enumerate(TOKENS)))
    (lang / "lexicon.txt").write_text(
        "".join(f"{word} {tokens}\n" for word, pronunciations in LEXICON.items() for tokens in pronunciations)
    )
    (folder / "text").write_text("\n".join(SENTENCES) + "\n")
    build_lm([folder / "text"], folder / "G.arpa", Lm(), lang / "words.txt")


def make_toy_tree() -> Tree:
    """Leaves of x do not depend on what is before; first ones of y and z, and further ones of z, do."""
    leaves_VV2 = np.zeros((4, 4, 2), dtype=np.int32)
    leaves_VV2[:, 1] = [1, 2]
    leaves_VV2[:, 2, 0] = [3, 4, 3, 3]
    leaves_VV2[:, 2, 1] = 5
    leaves_VV2[:, 3, 0] = [6, 6, 6, 7]
    leaves_VV2[:, 3, 1] = [8, 9, 9, 8]
    return Tree(leaves_VV2, np.arange(1, 11))


def make_random_tree(generator: np.random.Generator, num_tokens: int) -> Tree:
    """Make a tree with two first and two further leaves of each token, each for some left contexts."""
    leaves_VV2 = np.zeros((num_tokens, num_tokens, 2), dtype=np.int32)
    for token, place in itertools.product(range(1, num_tokens), (0, 1)):
        leaves_VV2[:, token, place] = 4 * token - 3 + 2 * place + generator.integers(0, 2, num_tokens)
    return Tree(leaves_VV2, generator.integers(1, 90, 4 * num_tokens - 3))


def write_language(folder: Path) -> None:
    """`tokenizer/`, `lang/` and `G.arpa`, a trigram, of a hundred words."""
    choose = random.Random(11)
    words = sorted({"".join(choose.choices("aeiounrst", k=choose.randint(1, 5))) for _ in range(150)})
    sentences = [choose.choices(words, k=choose.randint(1, 9)) for _ in range(300)]
    (folder / "text").write_text("".join(" ".join(sentence) + "\n" for sentence in sentences))
    train_tokenizer(folder / "text", folder / "tokenizer", 60)
    build_lang(folder / "text", folder / "tokenizer", folder / "lang", 100)
    build_lm([folder / "text"], folder / "G.arpa", Lm(), folder / "lang" / "words.txt")


def make_sentences(folder: Path, num: int) -> list[list[str]]:
    """Random sentences of the words of `folder`/lang."""
    choose = random.Random(5)
    words = read_symbols(folder / "lang" / "words.txt", "lang")[2:-3]
    return [choose.choices(words, k=choose.randint(0, 8)) for _ in range(num)]


def load_graph(folder: Path) -> kaldifst.StdConstFst:
    """Read the graph in `folder`."""
    return load_fst(read_graph(folder))


def accept(graph: kaldifst.StdConstFst, labels: Sequence[int]) -> dict[Labels, float]:
    """Output labels and lowest weight of every path of `graph` that reads `labels`."""
    arcs = cache(lambda state: list(arcs_of(graph, state)))

    @cache
    def rest(state: int, position: int) -> dict[Labels, float]:
        found: dict[Labels, float] = {}
        final = graph.final(state).value
        if position == len(labels) and math.isfinite(final):
            found[()] = final
        for read, write, weight, to in arcs(state):
            if read == 0 or (position < len(labels) and read == labels[position]):
                for outputs, cost in rest(to, position + (read != 0)).items():
                    outputs = (write, *outputs) if write else outputs
                    found[outputs] = min(found.get(outputs, math.inf), weight + cost)
        return found

    return rest(graph.start, 0)


def arcs_of(graph: kaldifst.StdConstFst, state: int) -> Iterator[tuple[int, int, float, int]]:
    """Input label, output label, weight and next state of the arcs of `state`."""
    for arc in kaldifst.ArcIterator(graph, state):
        yield arc.ilabel, arc.olabel, arc.weight.value, arc.nextstate
