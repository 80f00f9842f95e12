"""What `asrtool tune` and `asrtool decode` read at the size of Fisher and Switchboard, beside what the stages made.

The acoustic model and the neural language model have random weights; the former is made sure of its tokens, with blanks
in three rows of four. Features are noise. The graph is invented (invented_graph.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from invented_graph import write_graph

from asrtool.data.features.cmvn import Moments, write_cmvn
from asrtool.data.storage.index import Utterance, write_index
from asrtool.data.storage.shard import write_shard
from asrtool.lang.text import BACKOFF, EOS, EPSILON, read_symbols
from asrtool.lang.tokenizer import Tokenizer
from asrtool.models.acoustic import build_model, save_model
from asrtool.models.lm.neural_lm import build_neural_lm, save_neural_lm
from asrtool.settings.config import Config, to_table

NUM_FRAMES = 450
SURE, BLANKS = 4.0, 0.75  # standard deviation of a logit; fraction of rows


def make_search(folder: Path, work: Path, config: Config, num_arcs: float, num_utterances: int) -> None:
    """Write model.pt, nnlm, features and graph to `folder` that fit tokenizer and lang in `work`."""
    torch.manual_seed(0)
    num_tokens = Tokenizer.load(work / "tokenizer").num_tokens
    words = read_symbols(work / "lang" / "words.txt", "lang")
    for name in ("dev", "test"):
        write_features(folder / "features" / name, config, words, num_utterances)
    write_model(folder, config, num_tokens)
    vocabulary = [word for word in words if word not in (EPSILON, BACKOFF, EOS)]
    neural = build_neural_lm(config.nnlm.encoder, config.nnlm.output, vocabulary)
    (folder / "nnlm").mkdir()
    info = {"nnlm": to_table(config.nnlm), "words": vocabulary}
    save_neural_lm(folder / "nnlm" / "model.pt", info, neural.state_dict())
    write_graph(folder / "graph", num_arcs, num_tokens, len(words))
    for name in ("words.txt", "tokens.txt"):
        (folder / "graph" / name).write_bytes((work / "lang" / name).read_bytes())


def write_features(folder: Path, config: Config, words: Sequence[str], num_utterances: int) -> None:
    """Noise that changes in time, with any words as texts."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    items = []
    for i in range(num_utterances):
        text = " ".join(words[number] for number in random.integers(len(words) // 2, len(words) - 5, 12))
        utterance = Utterance(f"u{i:04}", "r", "A", 5.0 * i, NUM_FRAMES / 100, "s", text, 0, NUM_FRAMES)
        items.append((utterance, random.normal(size=(NUM_FRAMES, config.features.num_features)).astype(np.float32)))
    write_index(folder, write_shard(folder, 0, items, config.features))
    write_cmvn(folder, {}, Moments.of(np.concatenate([feats_TF for _, feats_TF in items])))


def write_model(folder: Path, config: Config, num_tokens: int) -> None:
    """Its last layer is scaled by the rows that it gets for noise."""
    sizes = {"num_features": config.features.num_features, "num_tokens": num_tokens}
    model = build_model(config.model, sizes["num_features"], num_tokens).eval()
    with torch.inference_mode():
        feats_NTF = torch.randn(2, NUM_FRAMES, sizes["num_features"])
        hidden_NTC, _ = model.encoder(feats_NTF, torch.full((2,), NUM_FRAMES))
    hidden_RC = hidden_NTC.flatten(0, 1)
    output: Any = model.objective.output
    with torch.no_grad():
        output.weight.normal_()
        logits_RV = hidden_RC @ output.weight.T
        output.weight *= SURE / logits_RV.std(dim=0, keepdim=True).T
        logits_RV = hidden_RC @ output.weight.T
        output.bias.copy_(-logits_RV.mean(dim=0))
        ahead_R = (logits_RV + output.bias)[:, 1:].max(dim=1).values - (logits_RV + output.bias)[:, 0]
        output.bias[0] += torch.quantile(ahead_R, BLANKS)
    info = {"model": to_table(config.model), "features": to_table(config.features), **sizes}
    save_model(folder / "model.pt", model, json.loads(json.dumps(info, default=list)))
