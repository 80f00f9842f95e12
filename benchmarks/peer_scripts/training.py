"""Train a BiLSTM with CTC on batches in memory: a bare loop, and SpeechBrain's.

    training.py batches FEATURES TOKENIZER OUT KEY=VALUE ...      # by asrtool: OUT/train.npz and OUT/dev.npz
    training.py bare|speechbrain OUT fp32|bf16

Each trains an epoch, evaluates dev and saves the weights, as `asrtool train` does. Prints the frames trained, and when
the first step began, in seconds since 1970.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

STACK, LAYERS, CELLS, RATE, CLIP = 3, 3, 256, 0.002, 5.0


def main() -> None:
    if sys.argv[1] == "batches":
        write_batches(Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]), sys.argv[5:])
        return
    out, precision = Path(sys.argv[2]), sys.argv[3]
    begin = (bare if sys.argv[1] == "bare" else speechbrain)(out, precision)
    frames = sum(int(batch["lens"].sum()) for batch in read(out / "train.npz"))
    print(json.dumps({"frames": frames, "first_step": begin}))


def write_batches(features: Path, tokenizer: Path, out: Path, settings: list[str]) -> None:
    """Write the batches of an epoch and of dev."""
    from asrtool.settings.toml_files import load_config
    from asrtool.train.train import build_components

    components = build_components(features, tokenizer, load_config([], settings))
    train_set = components.train_set
    for name, batches in (
        ("train", [train_set.read(planned) for planned in train_set.plan(0, 0, {})]),
        ("dev", components.dev_set.load(components.dev_set.plan_eval())),
    ):
        arrays: dict[str, Any] = {}
        for i, batch in enumerate(batches):
            arrays |= {f"{i}.feats": batch.inputs_NT, f"{i}.lens": batch.input_lens_N}
            arrays |= {f"{i}.tokens": batch.targets_NU.numpy(), f"{i}.token_lens": batch.target_lens_N.numpy()}
        np.savez(out / f"{name}.npz", **arrays)
    (out / "num_tokens").write_text(str(components.info["num_tokens"]), encoding="utf-8")


def read(path: Path) -> list[dict[str, Any]]:
    import torch

    with np.load(path) as file:
        num = len(file.files) // 4
        keys = ("feats", "lens", "tokens", "token_lens")
        return [{key: torch.from_numpy(file[f"{i}.{key}"]) for key in keys} for i in range(num)]


def stack(feats_NTF: Any) -> Any:
    """Make rows of STACK frames."""
    import torch

    feats_NTF = torch.nn.functional.pad(feats_NTF, (0, 0, 0, -feats_NTF.shape[1] % STACK))
    return feats_NTF.reshape(feats_NTF.shape[0], -1, STACK * feats_NTF.shape[2])


def bare(out: Path, precision: str) -> float:
    """Train by a loop as one writes it for a try: no masks, no records."""
    import torch
    from torch import nn

    torch.manual_seed(1)
    train, dev = read(out / "train.npz"), read(out / "dev.npz")
    num_tokens = int((out / "num_tokens").read_text())
    lstm = nn.LSTM(STACK * train[0]["feats"].shape[2], CELLS, LAYERS, bidirectional=True, batch_first=True)
    output = nn.Linear(2 * CELLS, num_tokens)
    model = nn.ModuleList([lstm, output])
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)

    def loss_of(batch: dict[str, Any]) -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            logits_NTV = output(lstm(stack(batch["feats"]))[0])
        log_probs_TNV = logits_NTV.float().log_softmax(-1).transpose(0, 1)
        lens_N = (batch["lens"] + STACK - 1) // STACK
        return nn.functional.ctc_loss(log_probs_TNV, batch["tokens"], lens_N, batch["token_lens"])

    begin = time.time()
    for batch in train:
        loss_of(batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    with torch.no_grad():
        print("dev", sum(float(loss_of(batch)) for batch in dev) / len(dev), file=sys.stderr)
    torch.save(model.state_dict(), out / "bare.pt")
    return begin


def speechbrain(out: Path, precision: str) -> float:
    """Train by SpeechBrain's Brain, LSTM and loss, on batches of a DataLoader."""
    import speechbrain as sb
    import torch
    from speechbrain.nnet.linear import Linear
    from speechbrain.nnet.losses import ctc_loss
    from speechbrain.nnet.RNN import LSTM

    torch.manual_seed(1)
    train, dev = read(out / "train.npz"), read(out / "dev.npz")
    num_tokens, num_inputs = int((out / "num_tokens").read_text()), STACK * train[0]["feats"].shape[2]
    begin: list[float] = []

    class Ctc(sb.Brain):
        def compute_forward(self, batch: dict[str, Any], stage: Any) -> Any:
            if not begin:
                begin.append(time.time())
            rows = stack(batch["feats"])
            lens_N = ((batch["lens"] + STACK - 1) // STACK) / rows.shape[1]
            hidden, _ = self.modules.lstm(rows, lengths=lens_N)
            return self.modules.output(hidden).float().log_softmax(-1), lens_N

        def compute_objectives(self, predictions: Any, batch: dict[str, Any], stage: Any) -> Any:
            log_probs, lens_N = predictions
            target_lens_N = batch["token_lens"] / batch["tokens"].shape[1]
            return ctc_loss(log_probs, batch["tokens"], lens_N, target_lens_N, blank_index=0)

        def on_stage_end(self, stage: Any, stage_loss: float, epoch: Any = None) -> None:
            if stage == sb.Stage.VALID:
                torch.save(self.modules.state_dict(), out / "speechbrain.pt")

    lstm = LSTM(CELLS, [None, None, num_inputs], num_layers=LAYERS, bidirectional=True)
    modules = {"lstm": lstm, "output": Linear(num_tokens, input_size=2 * CELLS)}
    brain = Ctc(
        modules,
        lambda parameters: torch.optim.AdamW(parameters, lr=RATE, fused=True),
        run_opts={"device": "cpu", "precision": precision, "max_grad_norm": CLIP, "noprogressbar": True},
    )
    loaders = [torch.utils.data.DataLoader(batches, batch_size=None) for batches in (train, dev)]  # type: ignore[var-annotated, arg-type]
    brain.fit(range(1), *loaders)
    return begin[0]


if __name__ == "__main__":
    main()
