"""A work folder with a small model of random weights: all that a recogniser is read from."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import torch

from asrtool.data.features.cmvn import Moments, write_cmvn
from asrtool.lang.tokenizer import Tokenizer, train_tokenizer
from asrtool.models.acoustic import build_model, save_model
from asrtool.settings.config import Config, format_toml, to_table
from asrtool.settings.data import Features
from asrtool.settings.decode import Decode
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice

SENTENCES = ["so what did you do", "uh i went to the sea", "the sea was fine", "[noise] yeah i see the sea th-"] * 3
NUM_TOKENS = 40
FEATURES = Features(type=Choice.of("features", "fbank", num_mel_bins=20), speeds=(1.0,))


def make_work(folder: Path, cmvn: str = "speaker", bidirectional: bool = True) -> Path:
    """The folder, which decodes by greedy search."""
    torch.manual_seed(1)
    sentences = folder / "sentences.txt"
    folder.mkdir(parents=True, exist_ok=True)
    sentences.write_text("\n".join(SENTENCES) + "\n")
    train_tokenizer(sentences, folder / "tokenizer", NUM_TOKENS)
    features = dataclasses.replace(FEATURES, cmvn=cmvn)
    lstm = Choice.of("encoder", "lstm", num_layers=1, hidden_size=16, bidirectional=bidirectional)
    model = Model(encoder=lstm)
    info = {
        "model": to_table(model),
        "features": to_table(features),
        "num_features": features.num_features,
        "num_tokens": NUM_TOKENS,
        "tokenizer": Tokenizer.load(folder / "tokenizer").digest,
    }
    built = build_model(model, features.num_features, NUM_TOKENS)
    with torch.no_grad():
        for weights in built.parameters():
            weights *= 4  # makes the input matter
    save_model(folder / "average" / "model.pt", built, info)
    config = Config(features=features, model=model, decode=Decode(methods=(Choice.of("search", "greedy"),)))
    write(folder / "config" / "report.toml", format_toml(config, ("data", "features", "model", "decode")))
    write(folder / "config" / "run.json", json.dumps({"command": "asrtool run", "recipe": "toy", "work": str(folder)}))
    write(folder / "tune" / "tuning.json", json.dumps({"methods": {"greedy": {}}}))
    write(folder / "tune" / "tuning.tsv", "method\twords\twer_percent\tchosen\ngreedy\t10\t12.50\tyes\n")
    write(folder / "train" / "train.json", json.dumps({"num_parameters": 1234, "hours": 1.5, "code": ["abc"]}))
    write(
        folder / "score" / "test" / "greedy" / "score.json",
        json.dumps({"overall": {"words": 8, "sub": 1, "del": 1, "ins": 0}}),
    )
    random = np.random.default_rng(1)
    everyone = Moments.of(random.normal(-8, 3, size=(1000, features.num_features)))
    (folder / "features" / "train").mkdir(parents=True)
    write_cmvn(folder / "features" / "train", {"speaker-1": everyone}, everyone)
    return folder


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
