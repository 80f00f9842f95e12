"""The neural language model trains by the loop, checkpoints, lock and signals of the acoustic model."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learners import Learners, batches_trained
from toy_task import assert_same_bits, last_weights
from trainings import dev_losses, interrupted_at, summary

from asrtool.errors import AsrtoolError
from asrtool.models.lm.neural_lm import NeuralLm, build_neural_lm, load_neural_lm
from asrtool.models.lm.next_word import NextWord
from asrtool.settings.schema import Choice
from asrtool.settings.toml_files import load_config
from asrtool.train.batches.sentence_source import Sentences, Text, plan_batches
from asrtool.train.nnlm import sort_by_frequency, start_neural_lm

NUM_PROCESSES = 2  # of learners
CONFIG = """
[nnlm]
num_epochs = 6
batch_words = 40
peak_lr = 0.02
precision = "fp32"
num_threads = 1
save_every_steps = 4
log_every_steps = 5

[nnlm.word-lstm]
num_layers = 1
hidden_size = 16
dropout = 0.1
"""
WORDS = ["<eps>", "<unk>", "one", "two", "three", "four", "#0", "<s>", "</s>"]
Texts = tuple[Path, Path, Path]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Texts:
    """Sentences that count, in which each word but the first is certain: train, dev, words.txt; read only."""
    random, folder = np.random.default_rng(5), tmp_path_factory.mktemp("texts")
    paths = (folder / "train.txt", folder / "dev.txt", folder / "words.txt")
    for path, num in zip(paths, (120, 20), strict=False):
        lengths = random.integers(1, 5, num)
        path.write_text("".join(" ".join(WORDS[2 : 2 + length]) + "\n" for length in lengths))
    paths[2].write_text("".join(f"{word} {number}\n" for number, word in enumerate(WORDS)))
    (folder / "nnlm.toml").write_text(CONFIG)
    return paths


def train(texts: Texts, out: Path, *overrides: str) -> dict[str, torch.Tensor]:
    """The last weights."""
    start_neural_lm(*texts, out, load_config([texts[0].with_name("nnlm.toml")], overrides))
    return last_weights(out)


@pytest.fixture
def trained(texts: Texts, finished: dict[Any, Path]) -> Path:
    """The folder of a training that nothing disturbed; read only."""
    key, out = (CONFIG, ()), texts[0].with_name("out")
    if key not in finished:
        train(texts, out)
    return finished.setdefault(key, out)


def test_it_learns_what_an_n_gram_would_know(texts: Texts, trained: Path, tmp_path: Path) -> None:
    """The output is adaptive, over words by frequency."""
    train(texts, tmp_path / "out", "nnlm.output=adaptive", "nnlm.adaptive.cutoffs=2,4")
    for out, words in ((trained, "<unk> one two three four <s>"), (tmp_path / "out", "one <s> two three four <unk>")):
        assert summary(out)["dev_perplexity"] < 2.0
        model = load_neural_lm(out / "model.pt")
        assert model.words == words.split()
        counting, jumping = model.log_probs([["one", "two", "three"], ["three", "one", "two"]])
        assert counting > jumping + 5


def test_words_are_sorted_by_their_number_in_the_text(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("b zebra lion b\nlion b\n")
    # Three of b, three that are unknown, two sentences, none of a and c.
    vocabulary = ["c", "a", "b", "<unk>", "<s>"]
    assert sort_by_frequency(vocabulary, [Text(text)]) == ["b", "<unk>", "<s>", "c", "a"]
    extra = tmp_path / "extra"
    extra.write_text("a a a a a\n")  # five of a, but six of b and of what is unknown
    assert sort_by_frequency(vocabulary, [Text(text, 2), Text(extra)]) == ["b", "<unk>", "a", "<s>", "c"]


def test_the_model_kept_is_that_of_the_best_epoch(texts: Texts, tmp_path: Path) -> None:
    """A rate that stays high makes the last epoch another one."""
    out = tmp_path / "out"
    rates = ("nnlm.schedule=halving", "nnlm.halving.hold_fraction=0.85", "nnlm.peak_lr=0.3", "nnlm.seed=3")
    train(texts, out, *rates)
    losses = dev_losses(out)
    assert len(losses) == 6
    assert losses[-1] > min(losses)
    model = load_neural_lm(out / "model.pt")
    dev = [line.split() for line in texts[1].read_text().splitlines()]
    perplexity = math.exp(-sum(model.log_probs(dev)) / sum(len(words) + 1 for words in dev))
    assert perplexity == pytest.approx(math.exp(min(losses)), 1e-4)
    assert perplexity == pytest.approx(summary(out)["dev_perplexity"], 1e-4)


def test_a_model_that_is_lost_or_damaged_is_written_again(texts: Texts, trained: Path, tmp_path: Path) -> None:
    model = shutil.copytree(trained, tmp_path / "out") / "model.pt"
    whole = model.read_bytes()
    for damage in (Path.unlink, lambda path: path.write_bytes(b"torn")):
        damage(model)
        train(texts, tmp_path / "out")
        assert model.read_bytes() == whole


def test_every_sentence_is_in_one_batch_and_no_batch_is_larger_than_asked() -> None:
    lengths_N = np.random.default_rng(1).integers(1, 31, 200)

    def plan(seed: int) -> list[list[int]]:
        return [batch.tolist() for batch in plan_batches(lengths_N, 100, seed and np.random.default_rng(seed))]

    for seed in (0, 2):
        batches = plan(seed)
        assert sorted(i for batch in batches for i in batch) == list(range(200))
        assert max(len(batch) * max(lengths_N[batch]) for batch in batches) <= 100
    assert [batch.tolist() for batch in plan_batches(np.array([500]), 100, None)] == [[0]]
    assert plan(2) == plan(2) != plan(3)


def small_model() -> NeuralLm:
    encoder, output = Choice.of("word-encoder", "word-lstm", hidden_size=4), Choice.of("word-output", "softmax")
    return build_neural_lm(encoder, output, ["<unk>", "one", "two", "<s>"])


def test_a_batch_has_its_sentences_as_numbers_and_counts_their_words(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("one two\n\none\nthree one two\n")
    source = Sentences([Text(text)], small_model(), batch_words=16, seed=1)
    (planned,) = source.plan(0, 0, {})
    (batch,) = source.load([planned])
    order = [int(name.rpartition(":")[2]) for name in batch.ids]
    assert sorted(order) == [1, 3, 4]
    read = {1: [3, 1, 2], 3: [3, 1], 4: [3, 0, 1, 2]}
    predicted = {1: [1, 2, 3], 3: [1, 3], 4: [0, 1, 2, 3]}
    for n, i in enumerate(order):
        length = len(read[i])
        assert batch.input_lens_N[n] == batch.target_lens_N[n] == length
        assert batch.inputs_NT[n, :length].tolist() == read[i]
        assert batch.targets_NU[n, :length].tolist() == predicted[i]
    assert (planned.num_samples, planned.normaliser, source.size().num_frames) == (3, 9, 9)


def test_an_epoch_has_the_own_sentences_several_times_and_those_of_extra_texts_once(tmp_path: Path) -> None:
    model = small_model()
    paths = [tmp_path / name for name in ("own.txt", "1.fisher.txt", "2.web.txt")]
    for path, text in zip(paths, ("one\ntwo two\n", "one two one\n\ntwo\n", "two one\n"), strict=True):
        path.write_text(text)
    of_epoch = [Text(paths[0], 3), *map(Text, paths[1:])]
    source = Sentences(of_epoch, model, batch_words=9, seed=1)
    batches = list(source.plan(2, 0, {}))
    read = [source.read(batch) for batch in batches]
    once = ["1.fisher.txt:1", "1.fisher.txt:3", "2.web.txt:1"]
    assert sorted(name for batch in read for name in batch.ids) == sorted([*once, *["own.txt:1", "own.txt:2"] * 3])
    last = {
        name: numbers[:length].tolist()
        for batch in read
        for name, numbers, length in zip(batch.ids, batch.inputs_NT, batch.input_lens_N, strict=True)
    }
    assert (last["own.txt:2"], last["1.fisher.txt:1"], last["2.web.txt:1"]) == ([3, 2, 2], [3, 1, 2, 1], [3, 2, 1])
    assert sum(batch.normaliser for batch in batches) == source.size().num_frames == 3 * 5 + 4 + 2 + 3
    assert list(Sentences(of_epoch, model, 9, 1).plan(2, 2, {})) == batches[2:]  # as a resumed training finds them
    assert list(source.plan(3, 0, {})) != batches


def test_it_learns_from_extra_texts_and_anew_where_one_of_them_has_changed(texts: Texts, tmp_path: Path) -> None:
    extra, out, short = tmp_path / "1.more.txt", tmp_path / "out", ["nnlm.num_epochs=2", "nnlm.repeats=1"]
    config, lines = load_config([texts[0].with_name("nnlm.toml")], short), texts[0].read_text()

    def rank_of(text: str) -> float:
        """Return how much likelier a sentence of it is than one of the own text, after a short training."""
        extra.write_text(text)
        start_neural_lm(*texts, out, config, extra=[extra])
        backwards, counting = load_neural_lm(out / "model.pt").log_probs([["four", "three"], ["one", "two"]])
        return backwards - counting

    assert rank_of("four three\n" * 60) > rank_of(lines) + 2
    recorded = json.loads((tmp_path / "out.old-1" / "inputs.json").read_text(encoding="utf-8"))
    assert set(recorded["sha256"]) == {"train.txt", "dev.txt", "words.txt", "extra/1.more.txt"}


@pytest.mark.parametrize("symbol", ["<unk>", "<s>"])
def test_a_vocabulary_of_another_kind_is_one_line(texts: Texts, tmp_path: Path, symbol: str) -> None:
    words = [word for word in WORDS if word != symbol]
    (tmp_path / "words.txt").write_text("".join(f"{word} {number}\n" for number, word in enumerate(words)))
    with pytest.raises(AsrtoolError, match=rf"words\.txt: has no {symbol}, expected the words\.txt of `asrtool lang`"):
        train((*texts[:2], tmp_path / "words.txt"), tmp_path / "out")


@pytest.mark.parametrize("loss", [1e4, math.nan])
def test_a_dev_loss_that_has_no_perplexity_is_one_line(texts, tmp_path, monkeypatch, loss: float) -> None:
    losses = NextWord.losses

    def diverged(objective: NextWord, *batch: torch.Tensor) -> torch.Tensor:
        return losses(objective, *batch) if objective.training else torch.full((len(batch[0]),), 10 * loss)

    monkeypatch.setattr(NextWord, "losses", diverged)
    with pytest.raises(AsrtoolError, match=r"nats a word on dev, expected less than 710; lower nnlm\.peak_lr"):
        train(texts, tmp_path / "out")
    assert not (tmp_path / "out" / "train.json").exists()


def test_two_learners_train_it_by_averaged_gradients(learners: Learners, texts: Texts, tmp_path: Path) -> None:
    out = tmp_path / "out"
    learners.run(train, texts, out, "distributed.strategy=allreduce")
    assert (summary(out)["num_learners"], summary(out)["num_samples"]) == (2, 6 * 120)
    assert set(batches_trained(out).values()) == {1}
    assert summary(out)["dev_perplexity"] < 2.5


def test_interrupted_and_resumed_it_ends_in_the_same_bits(texts: Texts, trained: Path, tmp_path: Path) -> None:
    with interrupted_at(1, 2):
        train(texts, tmp_path / "out")
    assert_same_bits(train(texts, tmp_path / "out"), last_weights(trained))
