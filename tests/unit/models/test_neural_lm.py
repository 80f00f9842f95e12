"""The neural language model: its probabilities word by word, and its file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from asrtool.config import Nnlm
from asrtool.errors import AsrtoolError
from asrtool.models.neural_lm import NeuralLm, load_neural_lm, save_neural_lm
from asrtool.models.torch_file import write_torch

SETTINGS = Nnlm(num_layers=2, hidden_size=8, dropout=0.5)
WORDS = ["<unk>", "a", "b", "c", "<s>"]
SENTENCES = [["a", "b"], [], ["c", "c", "a", "b", "b"], ["a", "zebra"]]


@pytest.fixture
def model() -> NeuralLm:
    torch.manual_seed(3)
    model = NeuralLm(SETTINGS, WORDS).eval()
    torch.nn.init.normal_(model.bias)
    return model


def log_prob_word_by_word(model: NeuralLm, sentence: list[str]) -> float:
    """The sum of ln p(word | words before), each from a reading of its own; the end of a sentence is <s>."""
    ids = [model.ids[word] if word in WORDS else 0 for word in ["<s>", *sentence, "<s>"]]
    total = 0.0
    for length in range(1, len(ids)):
        hidden = model.embedding.weight[torch.tensor(ids[:length])][None]
        for layer in model.layers:
            hidden = layer(hidden)[0]
        logits = model.embedding.weight @ hidden[0, -1] + model.bias
        total += logits.log_softmax(dim=0)[ids[length]].item()
    return total


def test_a_sentence_has_the_sum_of_its_words_whatever_it_is_batched_with(model: NeuralLm) -> None:
    expected = [log_prob_word_by_word(model, sentence) for sentence in SENTENCES]
    assert model.log_probs(SENTENCES) == pytest.approx(expected, abs=1e-4)
    assert [model.log_probs([sentence])[0] for sentence in SENTENCES] == pytest.approx(expected, abs=1e-4)
    assert model.log_probs([]) == []


def test_a_word_outside_the_vocabulary_is_the_unknown_one(model: NeuralLm) -> None:
    assert model.log_probs([["zebra", "a"]]) == model.log_probs([["<unk>", "a"]])


def test_a_model_is_read_as_it_was_written(model: NeuralLm, tmp_path: Path) -> None:
    save_neural_lm(tmp_path / "model.pt", model, dataclasses.asdict(SETTINGS))
    loaded = load_neural_lm(tmp_path / "model.pt")
    assert not loaded.training
    assert loaded.log_probs(SENTENCES) == model.log_probs(SENTENCES)


def test_a_missing_a_damaged_and_a_foreign_file_are_one_line(model: NeuralLm, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    with pytest.raises(AsrtoolError, match=r"model\.pt: cannot be read"):
        load_neural_lm(path)
    save_neural_lm(path, model, dataclasses.asdict(SETTINGS))
    data = path.read_bytes()
    path.write_bytes(data[:-40])
    with pytest.raises(AsrtoolError, match=r"model\.pt: no neural language model, or a damaged one"):
        load_neural_lm(path)
    info = {"nnlm": dataclasses.asdict(SETTINGS), "words": WORDS[:-1]}
    write_torch(path, {"format": 1, "info": info, "weights": model.state_dict()})
    with pytest.raises(
        AsrtoolError, match=r"model\.pt: weights that do not fit their settings.*run the stage nnlm again"
    ):
        load_neural_lm(path)
    write_torch(path, {"format": 9, "info": info, "weights": {}})
    with pytest.raises(AsrtoolError, match=r"model\.pt: format 9, expected 1"):
        load_neural_lm(path)
