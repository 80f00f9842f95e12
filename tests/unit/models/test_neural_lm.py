"""The neural language model: its probabilities word by word, and its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from in_bf16 import in_bf16
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from asrtool.errors import AsrtoolError
from asrtool.models.files.torch_file import write_torch
from asrtool.models.lm import neural_lm, next_word
from asrtool.models.lm.neural_lm import (
    NeuralLm,
    WordEncoder,
    WordLstm,
    load_neural_lm,
    make_word_tree,
    pad_sentences,
    save_neural_lm,
)
from asrtool.models.lm.next_word import Adaptive, NextWord, Softmax
from asrtool.settings.schema import Choice

LSTM = Choice.of("word-encoder", "word-lstm", num_layers=2, hidden_size=8, dropout=0.5)
TABLE = {"encoder": "word-lstm", "word-lstm": {"num_layers": 2, "hidden_size": 8, "dropout": 0.5}}
WORDS = ["<unk>", "a", "b", "c", "<s>"]
SENTENCES = [["a", "b"], [], ["c", "c", "a", "b", "b"], ["a", "zebra"]]


class WholeSentences(WordLstm):
    """An encoder that says no more than its forward pass, as one of a person's own may."""

    read_tree = WordEncoder.read_tree


class OneDevice(TorchDispatchMode):
    """Context in which an operation except a copy gets tensors of one device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        devices = {leaf.device.type for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)}
        assert len(devices) < 2 or func in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default), func
        return func(*args, **(kwargs or {}))


SOFTMAX, ADAPTIVE = Choice.of("word-output", "softmax"), Choice.of("word-output", "adaptive", cutoffs=(2, 4, 9))
OUTPUTS = [SOFTMAX, ADAPTIVE]
NARROW = Choice.of("word-encoder", "word-lstm", num_layers=2, hidden_size=8, projection_size=3, dropout=0.5)
# of torch, once a process, when a layer with a projection reads a batch on a CPU
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")


def make_model(encoder: type[WordLstm] = WordLstm, settings: Choice = LSTM, output: Choice = SOFTMAX) -> NeuralLm:
    torch.manual_seed(3)
    words = encoder(settings.settings, len(WORDS))
    model = NeuralLm(words, output.load()(output.settings, words.embedding), WORDS).eval()
    for name, weight in model.objective.named_parameters():
        if "bias" in name:
            torch.nn.init.normal_(weight)
    return model


@pytest.fixture
def model() -> NeuralLm:
    return make_model()


MODELS = [make_model(each, LSTM, output) for each in (WordLstm, WholeSentences) for output in OUTPUTS]
MODELS += [make_model(WordLstm, NARROW, output) for output in OUTPUTS]
NAMES = [f"{way}, {output}" for way in ("steps", "sentences", "projected") for output in ("softmax", "adaptive")]
of_all_kinds = pytest.mark.parametrize("reader", MODELS, ids=NAMES)
lists = st.lists(st.lists(st.sampled_from([*WORDS[1:4], "zebra"]), max_size=5), min_size=1, max_size=12)


def all_log_probs(output: NextWord, row_1C: torch.Tensor) -> torch.Tensor:
    """ln p of every word behind a row, (V,), by torch alone: a channel that is always 1 stands for the biases."""
    weight_VC = torch.cat([output.weight_VC, output.bias_V[:, None]], dim=1)
    row_1C = torch.cat([row_1C, torch.ones(1, 1)], dim=1)
    if isinstance(output, Softmax):
        return torch.log_softmax(row_1C @ weight_VC.T, dim=1)[0]
    assert isinstance(output, Adaptive)
    num_channels = row_1C.shape[1]
    oracle = torch.nn.AdaptiveLogSoftmaxWithLoss(num_channels, len(WORDS), cutoffs=[2, 4], div_value=1.0)
    groups_GC = torch.cat([output.group_weight_GC, output.group_bias_G[:, None]], dim=1)
    oracle.head.weight = torch.nn.Parameter(torch.cat([weight_VC[:2], groups_GC]))
    for (project, words), group in zip(oracle.tail, (slice(2, 4), slice(4, 5)), strict=True):
        project.weight, words.weight = torch.nn.Parameter(torch.eye(num_channels)), torch.nn.Parameter(weight_VC[group])
    return oracle.log_prob(row_1C)[0]


def log_prob_word_by_word(model: NeuralLm, sentence: list[str]) -> float:
    """The sum of ln p(word | words before), each from a reading of its own; the end of a sentence is <s>."""
    ids = [model.ids[word] if word in WORDS else 0 for word in ["<s>", *sentence, "<s>"]]
    total = 0.0
    for length in range(1, len(ids)):
        hidden = model.encoder.embedding.weight[torch.tensor(ids[:length])][None]
        for layer in model.encoder.layers:
            hidden = layer(hidden)[0]
        total += all_log_probs(model.objective, hidden[:, -1])[ids[length]].item()
    return total


@of_all_kinds
def test_a_sentence_has_the_sum_of_its_words_whatever_it_is_batched_with(reader: NeuralLm) -> None:
    expected = [log_prob_word_by_word(reader, sentence) for sentence in SENTENCES]
    assert reader.log_probs(SENTENCES) == pytest.approx(expected, abs=1e-4)
    assert [reader.log_probs([sentence])[0] for sentence in SENTENCES] == pytest.approx(expected, abs=1e-4)
    assert reader.log_probs([]) == []


@of_all_kinds
@given(sentences=lists, most=st.integers(1, 20), rows=st.integers(1, 9), words=st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_scores_side_by_side_are_those_one_by_one(
    reader: NeuralLm, sentences: list[list[str]], most: int, rows: int, words: int
) -> None:
    expected = []
    for sentence in sentences:
        read_1T, lens_1, predicted_1T = pad_sentences([reader.number(sentence)])
        with torch.no_grad():
            expected.append(-reader.loss(read_1T, lens_1, predicted_1T, lens_1).total.item())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neural_lm, "MAX_WORDS_AT_ONCE", most)
        patch.setattr(next_word, "CHUNK_ROWS", rows)
        patch.setattr(next_word, "CHUNK_WORDS", words)
        assert reader.log_probs(sentences) == pytest.approx(expected, rel=1e-5, abs=1e-6)


@of_all_kinds
def test_products_in_bf16_change_scores_a_little(reader: NeuralLm) -> None:
    expected = reader.log_probs(SENTENCES)
    with in_bf16():
        found = reader.log_probs(SENTENCES)
    assert found == pytest.approx(expected, rel=0.01)
    assert found != pytest.approx(expected, rel=1e-6)


@given(st.lists(st.lists(st.integers(0, 3), max_size=5).map(tuple), min_size=1, max_size=12))
@settings(max_examples=100, deadline=None)
def test_a_tree_has_each_beginning_once(sentences: list[tuple[int, ...]]) -> None:
    tree = make_word_tree(sentences, edge=9)
    paths: list[tuple[int, ...]] = [()]
    for parent, word in zip(tree.parent_R[1:].tolist(), tree.word_R[1:].tolist(), strict=True):
        paths.append((*paths[parent], word))
    beginnings = {words[:length] for words in sentences for length in range(len(words) + 1)}
    assert len(paths) == len(beginnings)
    assert set(paths) == beginnings
    assert [paths[node] for node in tree.last_N] == sentences
    assert [{len(path) for path in paths[level]} for level in tree.levels()] == [
        {d} for d in range(len(tree.starts) - 1)
    ]
    leaves = {path for path in beginnings if not any(other[:-1] == path for other in beginnings - {()})}
    assert {paths[node] for node in tree.leaves()} == leaves
    assert tree.word_R[0] == 9


def test_what_lists_begin_with_alike_is_read_once_and_each_word_by_the_first_layer(
    model: NeuralLm, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    linear = torch.nn.functional.linear
    monkeypatch.setattr(torch.nn.functional, "linear", lambda *args: read.append(len(args[0])) or linear(*args))  # type: ignore[func-returns-value]
    tree = make_word_tree(
        [tuple(model.number(words)[1:-1]) for words in (["a", "b", "c"], ["a", "b"], ["a", "b", "a"])], 4
    )
    model.encoder.read_tree(tree)
    # <s>, a, b, c; then for each level states, what the second layer takes, and its states
    assert read == [4, *[1] * 9, *[2] * 3]


@pytest.mark.parametrize("words", [[1, 2], [1, 4], [2, 3]])
def test_rare_words_are_looked_at_only_where_one_of_their_group_is_asked_for(
    words: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = make_model(output=ADAPTIVE).objective
    seen: list[tuple[int, int]] = []
    log_sums = next_word.log_sums

    def watched(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        if len(rows):
            seen.append((len(rows), len(weight)))
        return log_sums(rows, weight, bias)

    monkeypatch.setattr(next_word, "log_sums", watched)
    output.word_scores(torch.ones(3, 8), torch.tensor([1, 1]), torch.tensor(words))
    groups = {(1, 2): [(1, 2)], (1, 4): [(1, 1)], (2, 3): [(1, 2)]}[words[0], words[1]]
    assert seen == [(3, 4), *groups]  # two words and two groups for all three rows


@pytest.mark.parametrize("encoder", [WordLstm, WholeSentences])
def test_all_is_computed_where_the_weights_are(encoder: type[WordLstm]) -> None:
    model = make_model(encoder).to("meta")
    tree = make_word_tree([(1, 2), (1,), (3, 3, 1)], edge=4)
    with OneDevice():
        rows_RC = model.encoder.read_tree(tree)
        words_R = torch.zeros(len(tree.word_R), dtype=torch.int64, device="meta")
        scores_R = model.objective.word_scores(rows_RC, words_R, words_R)
    assert (scores_R.shape, scores_R.device.type) == ((6,), "meta")


def test_logits_of_few_words_are_held_at_once(model: NeuralLm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_word, "CHUNK_ROWS", 3)
    monkeypatch.setattr(next_word, "CHUNK_WORDS", 2)
    made: list[tuple[int, ...]] = []
    logits = next_word.compute_logits

    def watched(*args: torch.Tensor) -> torch.Tensor:
        made.append(tuple(logits(*args).shape))
        return logits(*args)

    monkeypatch.setattr(next_word, "compute_logits", watched)
    model.log_probs(SENTENCES)
    assert max(rows * words for rows, words in made) == 6


@of_all_kinds
def test_the_loss_of_a_batch_is_that_of_its_sentences_and_of_the_scores_of_its_words(reader: NeuralLm) -> None:
    read_NT, lens_N, predicted_NT = pad_sentences([reader.number(words) for words in SENTENCES])
    loss = reader.loss(read_NT, lens_N, predicted_NT, lens_N)
    assert loss.total.item() == pytest.approx(-sum(reader.log_probs(SENTENCES)), abs=1e-4)
    assert loss.normaliser == sum(len(words) + 1 for words in SENTENCES)
    scores_NTV, _ = reader(read_NT, lens_N)
    torch.testing.assert_close(scores_NTV.exp().sum(-1), torch.ones(scores_NTV.shape[:2]))
    is_word_NT = torch.arange(scores_NTV.shape[1]) < lens_N[:, None]
    found_NT = scores_NTV.gather(2, predicted_NT[..., None])[..., 0]
    assert -found_NT[is_word_NT].sum().item() == pytest.approx(loss.total.item(), abs=1e-4)


@of_all_kinds
def test_every_weight_has_a_gradient_also_where_no_word_is_rare(reader: NeuralLm) -> None:
    """Learners average the gradients of all weights, so none may be missing."""
    read_NT, lens_N, predicted_NT = pad_sentences([reader.number(["a"])])
    reader.zero_grad()
    reader.objective.losses(reader.encoder(read_NT, lens_N)[0][:, :1], predicted_NT[:, :1], lens_N - 1).sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in reader.parameters())


def test_a_vocabulary_smaller_than_the_first_group_leaves_one_word_to_it() -> None:
    output = Choice.of("word-output", "adaptive").settings
    assert Adaptive(output, torch.nn.Embedding(5, 2)).groups == [slice(4, 5)]
    assert Adaptive(output, torch.nn.Embedding(2001, 2)).groups == [slice(2000, 2001)]
    assert Adaptive(output, torch.nn.Embedding(9000, 2)).groups == [slice(2000, 8000), slice(8000, 9000)]


def test_output_and_embedding_are_one_weight_also_after_loading(model: NeuralLm, tmp_path: Path) -> None:
    save_neural_lm(tmp_path / "model.pt", {"nnlm": TABLE, "words": WORDS}, model.state_dict())
    for each in (model, load_neural_lm(tmp_path / "model.pt")):
        assert isinstance(each.objective, Softmax)  # as in files from before there were others
        assert each.objective.weight_VC is each.encoder.embedding.weight
        assert len(list(each.parameters())) == 1 + 2 * 4 + 1


@pytest.mark.parametrize("output", OUTPUTS, ids=["softmax", "adaptive"])
def test_a_model_is_read_as_it_was_written(output: Choice, tmp_path: Path) -> None:
    table = {**TABLE, "output": output.name, "adaptive": {"cutoffs": [2, 4, 9]}}
    table["word-lstm"] = {**TABLE["word-lstm"], "projection_size": 3}  # type: ignore[dict-item]
    model = make_model(settings=NARROW, output=output)
    save_neural_lm(tmp_path / "model.pt", {"nnlm": table, "words": WORDS}, model.state_dict())
    loaded = load_neural_lm(tmp_path / "model.pt")
    assert not loaded.training
    assert type(loaded.objective) is output.load()
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
