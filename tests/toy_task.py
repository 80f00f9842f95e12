"""A toy task: every letter sounds as one band of the spectrum for some frames."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from asrtool.data.features.cmvn import Moments, write_cmvn
from asrtool.data.storage.index import Utterance, write_feature_settings, write_index
from asrtool.data.storage.shard import keeping_samples, write_shard
from asrtool.lang.tokenizer import train_tokenizer
from asrtool.settings.data import Features
from asrtool.settings.schema import Choice

NUM_BINS = 8
NUM_TOKENS = 40
SETTINGS = Features(
    type=Choice.of("features", "fbank", num_mel_bins=NUM_BINS), cmvn="none", speeds=(1.0,), keep_audio=True
)
SHIFT = 80  # samples of a frame
LETTERS = "abcd"

TOY_CONFIG = """
[model.lstm]
num_layers = 2
hidden_size = 12
stack_frames = 2
dropout = 0.2

[specaugment]
max_freq_bins = 2
max_time_frames = 3

[train]
num_epochs = 3
batch_s = 1.5
peak_lr = 0.02
precision = "fp32"
num_threads = 1
log_every_steps = 2
save_every_steps = 3
"""


def say(text: str, random: np.random.Generator) -> np.ndarray:
    """Features (T, F) of `text`: 4 to 7 frames a letter, noise between words."""
    parts = []
    for letter in text:
        part = 0.3 * random.standard_normal((random.integers(4, 8), NUM_BINS))
        if letter in LETTERS:
            part[:, LETTERS.index(letter) * 2] += 3.0
        parts.append(part)
    return np.concatenate(parts).astype(np.float32)


def sound(feats_TF: np.ndarray) -> np.ndarray:
    """Samples of which the loudest frequency is that of the loudest value of each frame."""
    hz = np.repeat(200.0 + 400.0 * feats_TF.argmax(axis=1), SHIFT)
    samples: np.ndarray = 0.2 * np.sin(2 * np.pi * np.cumsum(hz) / SETTINGS.sampling_rate_hz)
    return samples.astype(np.float32)


def write_set(directory: Path, texts: list[str], seed: int) -> None:
    """Features of one utterance a text, in shards of eight, and samples, which were not what they were made of."""
    directory.mkdir(parents=True)
    random = np.random.default_rng(seed)
    utterances = []
    moments = Moments.of(np.zeros((1, NUM_BINS), dtype=np.float32))
    for shard, first in enumerate(range(0, len(texts), 8)):
        items = []
        for i, text in enumerate(texts[first : first + 8], first):
            feats_TF = say(text, random)
            moments += Moments.of(feats_TF)
            name = f"{directory.name}-{i}"
            duration_s = len(feats_TF) / 100
            items.append((Utterance(name, name, "A", 0.0, duration_s, name, text, shard, len(feats_TF)), feats_TF))
        with keeping_samples(directory, shard) as keep:
            for utterance, feats_TF in items:
                keep(utterance, sound(feats_TF))
        utterances += write_shard(directory, shard, items, SETTINGS)
    write_index(directory, utterances)
    write_cmvn(directory, {}, moments)


def write_toy(root: Path, num_train: int, num_dev: int) -> Path:
    """Write `features` of so many utterances and `tokenizer` to the folder `root`; return it."""
    for name, num, seed in (("train", num_train, 1), ("dev", num_dev, 2)):
        write_set(root / "features" / name, make_texts(num, seed), seed)
    write_feature_settings(root / "features", SETTINGS)
    sentences = root / "sentences.txt"
    sentences.write_text("\n".join(make_texts(60, seed=3)) + "\n", encoding="utf-8")
    train_tokenizer(sentences, root / "tokenizer", NUM_TOKENS)
    return root


def make_texts(num: int, seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    words = ["".join(random.choice(list(LETTERS), size=3)) for _ in range(3 * num)]
    return [" ".join(words[3 * i : 3 * i + random.integers(1, 4)]) for i in range(num)]


def last_weights(out: Path) -> dict[str, torch.Tensor]:
    """Return the weights of the newest checkpoint, and their moving average if it has one."""
    content = torch.load(max((out / "checkpoints").glob("step-????????.pt")), weights_only=True)
    weights: dict[str, torch.Tensor] = content["weights"]
    return weights | {f"ema {name}": value for name, value in content.get("ema", {"weights": {}})["weights"].items()}


def assert_same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert list(one) == list(other)
    for name, weight in one.items():
        assert torch.equal(weight, other[name]), name


def assert_trained_once(out: Path, num_samples: int) -> dict[str, Any]:
    """Each batch of a finished training, by the records of all learners; its summary."""
    lines = [line for path in (out / "learners").glob("*.jsonl") for line in path.read_text().splitlines()]
    trained = Counter((entry["epoch"], entry["batch"]) for entry in map(json.loads, lines))
    summary: dict[str, Any] = json.loads((out / "train.json").read_text())
    assert set(trained.values()) == {1}
    assert summary["num_samples"] == num_samples
    return summary
