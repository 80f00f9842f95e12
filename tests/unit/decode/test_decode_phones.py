"""Decoding with a model of phones, whose posteriors are made up."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from phone_language import write_phone_language

from asrtool.decode.decoder import Searches
from asrtool.decode.forward import AcousticModel
from asrtool.decode.parameters import DecodingParameters, combine
from asrtool.decode.resources import Resources
from asrtool.decode.search.method import make_methods
from asrtool.errors import AsrtoolError
from asrtool.lang.graph import build_graph
from asrtool.lang.phones import TOKENS, PhoneTokenizer
from asrtool.models.objectives.topology import CtcTopology
from asrtool.settings.config import Config, Decode
from asrtool.settings.schema import Choice

SENTENCES = ["they read two books", "i went to the sea", "i see the sea too", "[noise] you know no two words th-"] * 3
WEIGHTS = DecodingParameters.of("graph", lm_weight=0.5, word_penalty=0.0, beam=14.0)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("work")
    write_phone_language(work, SENTENCES)
    build_graph(work / "lang", work / "lm" / "G.arpa", work / "graph", CtcTopology().transducer)
    return work


@pytest.fixture
def acoustic() -> AcousticModel:
    info = {"features": {"frame_shift_ms": 10.0}, "model": {}, "num_tokens": len(TOKENS)}
    info["tokenizer"] = PhoneTokenizer({}).digest
    model = torch.nn.Identity()
    model.encoder = SimpleNamespace(subsampling=3)  # type: ignore[assignment]
    return AcousticModel(Path("model.pt"), model, info)  # type: ignore[arg-type]


def open_searches(work: Path, acoustic: AcousticModel, *names: str) -> Searches:
    """The methods `names`, open."""
    config = Config(decode=Decode(methods=tuple(Choice.of("search", name) for name in names)))
    folders = {name: work / name for name in ("tokenizer", "lang", "lm", "graph")}
    methods = make_methods(config.decode, Resources(acoustic, folders, config))
    for method in methods.values():
        method.open({axis.name: axis.values for axis in method.axes()})
    if graph := methods.get("graph"):
        graph.prepare(combine("graph", graph.axes(), None))
    return Searches(methods)


def say(phones: str) -> np.ndarray:
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
def test_words_are_those_the_language_model_expects_of_what_sounds_so(
    work: Path, acoustic: AcousticModel, phones: str, words: str
) -> None:
    search = open_searches(work, acoustic, "graph")
    (((found, _),),) = search([(say(phones), [WEIGHTS])])
    assert [word.text for word in found.words] == words.split()
    assert all(word.confidence == pytest.approx(np.exp(-0.05)) for word in found.words)
    starts = [word.begin_s for word in found.words]
    assert starts == sorted(starts)
    assert found.words[-1].end_s <= len(say(phones)) * acoustic.frame_s + 1e-9


def test_a_word_lasts_from_its_first_phone_to_its_last(work: Path, acoustic: AcousticModel) -> None:
    search = open_searches(work, acoustic, "graph")
    (((found, _),),) = search([(say("DH EY R EH D T UW B UH K S"), [WEIGHTS])])
    times = [(word.text, round(word.begin_s, 3), round(word.end_s, 3)) for word in found.words]
    # Rows of 0.03 s, a phone every second one; between two words the border is in the middle.
    assert times == [
        ("they", 0.0, 0.105),
        ("read", 0.105, 0.285),
        ("two", 0.285, 0.405),
        ("books", 0.405, 0.66),
    ]


@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_methods_that_read_words_off_tokens_are_refused(work: Path, acoustic: AcousticModel, method: str) -> None:
    expected = f"tokenizer: its tokens do not mark where a word begins, which method {method} needs; use --set decode"
    with pytest.raises(AsrtoolError, match=expected):
        open_searches(work, acoustic, method, "graph")
