"""Training the neural language model."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from asrtool.config import Nnlm
from asrtool.errors import AsrtoolError
from asrtool.models.neural_lm import NeuralLm, load_neural_lm
from asrtool.train import nnlm
from asrtool.train.nnlm import plan_batches, train_neural_lm

SETTINGS = Nnlm(num_layers=1, hidden_size=16, dropout=0.1, num_epochs=6, batch_words=40, learning_rate=0.02)
WORDS = ["<eps>", "<unk>", "one", "two", "three", "four", "#0", "<s>", "</s>"]


@pytest.fixture
def texts(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Sentences that count, in which each word but the first is certain: train, dev, words.txt."""
    random = np.random.default_rng(5)
    paths = (tmp_path / "train.txt", tmp_path / "dev.txt", tmp_path / "words.txt")
    for path, num in zip(paths, (120, 20), strict=False):
        lengths = random.integers(1, 5, num)
        path.write_text("".join(" ".join(WORDS[2 : 2 + length]) + "\n" for length in lengths))
    paths[2].write_text("".join(f"{word} {number}\n" for number, word in enumerate(WORDS)))
    return paths


def test_it_learns_what_an_n_gram_would_know(texts: tuple[Path, Path, Path], tmp_path: Path) -> None:
    train_neural_lm(*texts, tmp_path / "out", SETTINGS)
    summary = json.loads((tmp_path / "out" / "nnlm.json").read_text())
    assert summary["dev_perplexity"] == min(summary["perplexities"]) < 2.0
    assert len(summary["perplexities"]) == 6
    model = load_neural_lm(tmp_path / "out" / "model.pt")
    assert model.words == ["<unk>", "one", "two", "three", "four", "<s>"]
    counting, jumping = model.log_probs([["one", "two", "three"], ["three", "one", "two"]])
    assert counting > jumping + 5


def test_the_model_kept_is_that_of_the_best_epoch(texts: tuple[Path, Path, Path], tmp_path: Path) -> None:
    train_neural_lm(*texts, tmp_path / "out", SETTINGS)
    model = load_neural_lm(tmp_path / "out" / "model.pt")
    dev = [line.split() for line in texts[1].read_text().splitlines()]
    perplexity = math.exp(-sum(model.log_probs(dev)) / sum(len(words) + 1 for words in dev))
    assert perplexity == pytest.approx(json.loads((tmp_path / "out" / "nnlm.json").read_text())["dev_perplexity"], 1e-4)


def test_a_training_that_was_stopped_ends_with_the_weights_of_one_that_was_not(
    texts: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_neural_lm(*texts, tmp_path / "whole", SETTINGS)
    plan = nnlm.plan_batches
    calls = []

    def stop_in_the_fourth_epoch(*args: object) -> list[list[int]]:
        calls.append(args[2])
        if sum(call is not None for call in calls) == 4:
            raise KeyboardInterrupt
        return plan(*args)

    monkeypatch.setattr(nnlm, "plan_batches", stop_in_the_fourth_epoch)
    with pytest.raises(KeyboardInterrupt):
        train_neural_lm(*texts, tmp_path / "parts", SETTINGS)
    monkeypatch.setattr(nnlm, "plan_batches", plan)
    assert not (tmp_path / "parts" / "nnlm.json").exists()
    train_neural_lm(*texts, tmp_path / "parts", SETTINGS)
    for name in ("model.pt", "nnlm.json"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_training_of_other_data_does_not_go_on(texts: tuple[Path, Path, Path], tmp_path: Path) -> None:
    train_neural_lm(*texts, tmp_path / "out", SETTINGS)
    before = (tmp_path / "out" / "model.pt").read_bytes()
    texts[0].write_text("four three two one\n" * 30)
    train_neural_lm(*texts, tmp_path / "out", SETTINGS)
    assert (tmp_path / "out" / "model.pt").read_bytes() != before
    assert len(json.loads((tmp_path / "out" / "nnlm.json").read_text())["perplexities"]) == SETTINGS.num_epochs


def test_every_sentence_is_in_one_batch_and_no_batch_is_larger_than_asked() -> None:
    lengths = np.random.default_rng(1).integers(0, 30, 200).tolist()
    for random in (None, np.random.default_rng(2)):
        batches = plan_batches(lengths, 100, random)
        assert sorted(i for batch in batches for i in batch) == list(range(200))
        assert max(len(batch) * (max(lengths[i] for i in batch) + 1) for batch in batches) <= 100
    assert plan_batches([500], 100, None) == [[0]]
    assert plan_batches(lengths, 100, np.random.default_rng(2)) == plan_batches(lengths, 100, np.random.default_rng(2))


def test_gradients_that_are_no_numbers_are_one_line(
    texts: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda parameters, norm: torch.tensor(math.nan))
    with pytest.raises(AsrtoolError, match=r"nnlm, epoch 1: gradient norm nan; lower nnlm\.learning_rate"):
        train_neural_lm(*texts, tmp_path / "out", SETTINGS)


def test_a_missing_text_is_one_line(texts: tuple[Path, Path, Path], tmp_path: Path) -> None:
    texts[1].unlink()
    with pytest.raises(AsrtoolError, match=r"dev\.txt: cannot be read, No such file"):
        train_neural_lm(*texts, tmp_path / "out", SETTINGS)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"torn")], ids=["lost", "damaged"])
def test_a_model_that_is_lost_or_damaged_is_trained_anew(
    texts: tuple[Path, Path, Path], tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    train_neural_lm(*texts, tmp_path / "out", SETTINGS)
    model = tmp_path / "out" / "model.pt"
    whole = model.read_bytes()
    damage(model)
    train_neural_lm(*texts, tmp_path / "out", SETTINGS)
    assert model.read_bytes() == whole


def test_a_training_stopped_over_another_does_not_leave_its_model_to_that_one(
    texts: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    train_neural_lm(*texts, out, SETTINGS)
    first = (out / "model.pt").read_bytes()

    def stop(path: Path, content: dict[str, object]) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(nnlm, "write_torch", stop)  # the checkpoint, right after the first model
        with pytest.raises(KeyboardInterrupt):
            train_neural_lm(*texts, out, dataclasses.replace(SETTINGS, seed=2))
    assert (out / "model.pt").read_bytes() != first
    assert not (out / "nnlm.json").exists()
    train_neural_lm(*texts, out, SETTINGS)
    assert (out / "model.pt").read_bytes() == first


def test_a_damaged_checkpoint_is_told_with_what_to_remove(texts: tuple[Path, Path, Path], tmp_path: Path) -> None:
    checkpoint = tmp_path / "out" / "checkpoint.pt"
    checkpoint.parent.mkdir()
    checkpoint.write_bytes(b"torn")
    with pytest.raises(
        AsrtoolError, match=r"checkpoint\.pt: no checkpoint.*; remove .*checkpoint\.pt; the same command"
    ):
        train_neural_lm(*texts, tmp_path / "out", SETTINGS)


@pytest.mark.parametrize("symbol", ["<unk>", "<s>"])
def test_a_vocabulary_of_another_kind_is_one_line(texts: tuple[Path, Path, Path], tmp_path: Path, symbol: str) -> None:
    words = [word for word in WORDS if word != symbol]
    texts[2].write_text("".join(f"{word} {number}\n" for number, word in enumerate(words)))
    with pytest.raises(AsrtoolError, match=rf"words\.txt: has no {symbol}, expected the words\.txt of `asrtool lang`"):
        train_neural_lm(*texts, tmp_path / "out", SETTINGS)


@pytest.mark.parametrize("loss", [1e4, math.inf, math.nan])
def test_a_dev_loss_that_has_no_perplexity_is_one_line(
    texts: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: float
) -> None:
    losses = NeuralLm.losses

    def diverged(model: NeuralLm, *batch: torch.Tensor) -> torch.Tensor:
        return losses(model, *batch) if model.training else torch.full((len(batch[0]),), 10 * loss)

    monkeypatch.setattr(NeuralLm, "losses", diverged)
    with pytest.raises(AsrtoolError, match=r"nnlm, epoch 1: .* nats a word on dev, .*; lower nnlm\.learning_rate"):
        train_neural_lm(*texts, tmp_path / "out", SETTINGS)
    assert not (tmp_path / "out" / "nnlm.json").exists()
