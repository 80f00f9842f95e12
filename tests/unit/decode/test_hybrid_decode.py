"""Decoding with models of phones, CTC and hybrid, whose posteriors are made up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import run_command
from made_up import acoustic_of, open_searches, write_phone_language
from toy_graph import make_random_tree

from asrtool.decode.decoder import Searches
from asrtool.decode.parameters import DecodingParameters
from asrtool.errors import AsrtoolError
from asrtool.lang.graph import build_graph
from asrtool.lang.phones import TOKENS, PhoneTokenizer
from asrtool.models.acoustic import tree_to_info
from asrtool.models.objectives.decision_tree import Tree
from asrtool.models.objectives.topology import CtcTopology
from asrtool.settings.config import Config, Decode
from asrtool.settings.schema import Choice

SENTENCES = ["they read two books", "i went to the sea", "i see the sea too", "[noise] you know no two words th-"] * 3
HYBRID = ["model.objective=frame-ce", "decode.methods=graph,rescore"]
WEIGHTS = {"lm_weight": 1.0, "word_penalty": 0.0, "beam": 14.0}
GRAPH_WEIGHTS = DecodingParameters.of("graph", lm_weight=0.5, word_penalty=0.0, beam=14.0)
FRAME_S = 0.03


TREE = make_random_tree(np.random.default_rng(1), len(TOKENS))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("work")
    write_phone_language(work, SENTENCES)
    build_graph(work / "lang", work / "lm" / "G.arpa", work / "ctc", CtcTopology().transducer)
    TREE.save(work)
    paths = [work / name for name in ("lang", "lm/G.arpa", "hybrid")]
    run_command("graph", *paths, "--targets", work, "--set", HYBRID[0], "--set", HYBRID[1])
    return work


def open_methods(work: Path, tree: Tree | None, *names: str) -> Searches:
    """Methods for a hybrid model of `tree`, or for a CTC model."""
    model = {"encoder": "lstm", "objective": "frame-ce", "frame-ce": {"prior_scale": 0.5}} if tree else {}
    acoustic = acoustic_of(PhoneTokenizer({}), model=model, **tree_to_info(tree))
    folders: dict[str, Path | None] = {name: work / name for name in ("tokenizer", "lang", "lm")}
    folders["graph"] = work / ("hybrid" if tree else "ctc")
    config = Config(decode=Decode(methods=tuple(Choice.of("search", name) for name in names)))
    return open_searches(acoustic, folders, config)


def say_by_hybrid(phones: str) -> np.ndarray:
    """Scores of `phones`, one to three rows each, silence where a - stands."""
    leaves, left = [], 0
    for number, phone in enumerate(phones.split()):
        token = 0 if phone == "-" else TOKENS.index(phone)
        first, further = TREE.leaves_VV2[left, token]
        leaves += [first, *[further] * (number % 3)]
        left = token
    scores_TL = np.full((len(leaves), TREE.num_leaves), -9.0, dtype=np.float32)
    scores_TL[np.arange(len(leaves)), leaves] = -0.05
    return scores_TL - np.float32(0.5) * TREE.log_priors_L


def is_silent(leaf: int) -> bool:
    """Return whether no word has it."""
    return TOKENS[TREE.tokens_L[leaf]][0] in "<["


@pytest.mark.parametrize(
    ("phones", "words"),
    [
        ("- AY S IY DH AH - S IY T UW -", "i see the sea too"),
        ("AY W EH N T T AH DH IY S IY", "i went to the sea"),
        ("[noise] Y UW N OW N OW - - T UW W ER D Z DH", "you know no two words th-"),
    ],
)
def test_words_are_found_in_the_states_of_their_phones(work: Path, phones: str, words: str) -> None:
    searches = open_methods(work, TREE, "graph", "rescore")
    scores_TL = say_by_hybrid(phones)
    graph_weights = DecodingParameters.of("graph", **WEIGHTS)
    ((found,),) = searches([(scores_TL, [graph_weights])])
    assert " ".join(word.text for word in found.words) == words
    for word in found.words:
        assert word.confidence == pytest.approx(np.exp(-0.05), abs=1e-3)  # of posteriors, priors left out
    posteriors_TL = scores_TL + np.float32(0.5) * TREE.log_priors_L
    first = next(r for r, leaf in enumerate(posteriors_TL.argmax(axis=1)) if not is_silent(leaf))
    assert found.words[0].begin_s == pytest.approx(0.03 * first)  # and no margin before it
    rescore = DecodingParameters.of("rescore", graph_weights, **WEIGHTS, nnlm_weight=0.0)
    method = searches.methods["rescore"]
    (chosen,) = method.choose(method.search(scores_TL, method.first_pass(rescore)), [rescore])
    assert " ".join(word.text for word in chosen) == words


def test_a_graph_of_another_tree_is_refused(work: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"hybrid: made with another decision tree than model\.pt; run the stage gr"):
        open_methods(work, make_random_tree(np.random.default_rng(2), len(TOKENS)), "graph")


def test_a_graph_without_a_tree_is_refused(work: Path, tmp_path: Path) -> None:
    words = [work / "lang", work / "lm/G.arpa", tmp_path / "graph", "--set", HYBRID[0], "--set", HYBRID[1]]
    with pytest.raises(AsrtoolError, match=r"frame-ce has a decision tree, and --targets is not given; name the fold"):
        run_command("graph", *words)


def say_by_ctc(phones: str) -> np.ndarray:
    """Scores of `phones`: a row for each, and a row of blank behind it."""
    columns = [column for phone in phones.split() for column in (TOKENS.index(phone), 0)]
    scores_TV = np.full((len(columns), len(TOKENS)), -8.0, dtype=np.float32)
    scores_TV[np.arange(len(columns)), columns] = -0.05
    return scores_TV


@pytest.mark.parametrize(
    ("phones", "words"),
    [
        ("AY S IY DH AH S IY T UW", "i see the sea too"),  # homophones by the language model
        ("AY W EH N T T AH DH IY S IY", "i went to the sea"),  # not the first pronunciations of to and the
        ("[noise] Y UW N OW N OW T UW W ER D Z DH", "you know no two words th-"),
    ],
)
def test_words_are_those_the_language_model_expects_of_what_sounds_so(work: Path, phones: str, words: str) -> None:
    search = open_methods(work, None, "graph")
    ((found,),) = search([(say_by_ctc(phones), [GRAPH_WEIGHTS])])
    assert [word.text for word in found.words] == words.split()
    assert all(word.confidence == pytest.approx(np.exp(-0.05)) for word in found.words)
    starts = [word.begin_s for word in found.words]
    assert starts == sorted(starts)
    assert found.words[-1].end_s <= len(say_by_ctc(phones)) * FRAME_S + 1e-9


def test_a_word_lasts_from_its_first_phone_to_its_last(work: Path) -> None:
    search = open_methods(work, None, "graph")
    ((found,),) = search([(say_by_ctc("DH EY R EH D T UW B UH K S"), [GRAPH_WEIGHTS])])
    times = [(word.text, round(word.begin_s, 3), round(word.end_s, 3)) for word in found.words]
    # Rows of 0.03 s, a phone every second one; between two words the border is in the middle.
    assert times == [
        ("they", 0.0, 0.105),
        ("read", 0.105, 0.285),
        ("two", 0.285, 0.405),
        ("books", 0.405, 0.66),
    ]


@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_methods_that_read_words_off_tokens_are_refused(work: Path, method: str) -> None:
    expected = f"tokenizer: its tokens do not mark where a word begins, which method {method} needs; use --set decode"
    with pytest.raises(AsrtoolError, match=expected):
        open_methods(work, None, method, "graph")
