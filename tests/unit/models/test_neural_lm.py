"""The neural language model: its probabilities word by word, and its file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from asrtool.errors import AsrtoolError
from asrtool.models.neural_lm import NeuralLm, build_neural_lm, load_neural_lm, pad_sentences, save_neural_lm
from asrtool.models.torch_file import write_torch
from asrtool.settings import Choice

LSTM = Choice.of("word-encoder", "word-lstm", num_layers=2, hidden_size=8, dropout=0.5)
TABLE = {"encoder": "word-lstm", "word-lstm": {"num_layers": 2, "hidden_size": 8, "dropout": 0.5}}
WORDS = ["<unk>", "a", "b", "c", "<s>"]
SENTENCES = [["a", "b"], [], ["c", "c", "a", "b", "b"], ["a", "zebra"]]


@pytest.fixture
def model() -> NeuralLm:
    torch.manual_seed(3)
    model = build_neural_lm(LSTM, WORDS).eval()
    torch.nn.init.normal_(model.objective.bias_V)
    return model


def log_prob_word_by_word(model: NeuralLm, sentence: list[str]) -> float:
    """The sum of ln p(word | words before), each from a reading of its own; the end of a sentence is <s>."""
    ids = [model.ids[word] if word in WORDS else 0 for word in ["<s>", *sentence, "<s>"]]
    total = 0.0
    for length in range(1, len(ids)):
        hidden = model.encoder.embedding.weight[torch.tensor(ids[:length])][None]
        for layer in model.encoder.layers:
            hidden = layer(hidden)[0]
        logits = model.encoder.embedding.weight @ hidden[0, -1] + model.objective.bias_V
        total += logits.log_softmax(dim=0)[ids[length]].item()
    return total


def test_a_sentence_has_the_sum_of_its_words_whatever_it_is_batched_with(model: NeuralLm) -> None:
    expected = [log_prob_word_by_word(model, sentence) for sentence in SENTENCES]
    assert model.log_probs(SENTENCES) == pytest.approx(expected, abs=1e-4)
    assert [model.log_probs([sentence])[0] for sentence in SENTENCES] == pytest.approx(expected, abs=1e-4)
    assert model.log_probs([]) == []


def test_a_word_outside_the_vocabulary_is_the_unknown_one(model: NeuralLm) -> None:
    assert model.log_probs([["zebra", "a"]]) == model.log_probs([["<unk>", "a"]])


def test_the_loss_of_a_batch_is_that_of_its_sentences_and_counts_their_words(model: NeuralLm) -> None:
    read_NT, lens_N, predicted_NT = pad_sentences([model.number(words) for words in SENTENCES])
    loss = model.loss(read_NT, lens_N, predicted_NT, lens_N)
    assert loss.total.item() == pytest.approx(-sum(model.log_probs(SENTENCES)), abs=1e-4)
    assert loss.normaliser == sum(len(words) + 1 for words in SENTENCES)


def test_scores_are_the_log_probabilities_that_the_loss_adds_up(model: NeuralLm) -> None:
    read_NT, lens_N, predicted_NT = pad_sentences([model.number(["a", "b"])])
    scores_1TV, _ = model(read_NT, lens_N)
    torch.testing.assert_close(scores_1TV.exp().sum(-1), torch.ones(1, 3))
    found = scores_1TV[0].gather(1, predicted_NT[0][:, None]).sum()
    assert found.item() == pytest.approx(model.log_probs([["a", "b"]])[0], abs=1e-4)


def test_output_and_embedding_are_one_weight_also_after_loading(model: NeuralLm, tmp_path: Path) -> None:
    save_neural_lm(tmp_path / "model.pt", {"nnlm": TABLE, "words": WORDS}, model.state_dict())
    for each in (model, load_neural_lm(tmp_path / "model.pt")):
        assert each.objective.weight_VC is each.encoder.embedding.weight
        assert len(list(each.parameters())) == 1 + 2 * 4 + 1


def test_a_model_is_read_as_it_was_written(model: NeuralLm, tmp_path: Path) -> None:
    save_neural_lm(tmp_path / "model.pt", {"nnlm": TABLE, "words": WORDS}, model.state_dict())
    loaded = load_neural_lm(tmp_path / "model.pt")
    assert not loaded.training
    assert loaded.log_probs(SENTENCES) == model.log_probs(SENTENCES)


def test_a_missing_a_damaged_and_a_foreign_file_are_one_line(model: NeuralLm, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    with pytest.raises(AsrtoolError, match=r"model\.pt: cannot be read"):
        load_neural_lm(path)
    save_neural_lm(path, {"nnlm": TABLE, "words": WORDS}, model.state_dict())
    data = path.read_bytes()
    path.write_bytes(data[:-40])
    with pytest.raises(AsrtoolError, match=r"model\.pt: no neural language model, or a damaged one"):
        load_neural_lm(path)
    info = {"nnlm": TABLE, "words": WORDS[:-1]}
    write_torch(path, {"format": 2, "info": info, "weights": model.state_dict()})
    with pytest.raises(
        AsrtoolError, match=r"model\.pt: weights that do not fit their settings.*run the stage nnlm again"
    ):
        load_neural_lm(path)
    write_torch(path, {"format": 9, "info": info, "weights": {}})
    with pytest.raises(AsrtoolError, match=r"model\.pt: format 9, expected 2"):
        load_neural_lm(path)
