"""Compute forward and backward of a module or loss by asrtool and others.

    modules.py blocks asrtool|torchaudio|speechbrain|espnet
    modules.py conformer asrtool|speechbrain|espnet
    modules.py transducer asrtool|k2|k2-pruned
    modules.py attention asrtool|speechbrain|espnet

4 utterances of 250 rows of 256 channels, 60 of 500 tokens. `blocks` are 4 of a conformer with 4 heads, kernels of 31
rows and dropout 0.1, `conformer` has two convolutions of 256 channels on 1,000 x 80 values before them. torchaudio's
has no positions. `transducer` is the loss from the logits, or for `k2-pruned` from two terms of them, without a joint
network. `attention` has two LSTM layers of 256 cells. Prints CPU seconds of a step.
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
import time
from typing import Any

import torch
from torch import nn

NUM_STEPS, BLOCKS, N, T, D, U, V = 5, 4, 4, 250, 256, 60, 500


def main() -> None:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    work, side = sys.argv[1:]
    module, run = globals()[f"open_{work}"](side)
    seconds = []
    for _ in range(NUM_STEPS + 1):  # the first one warms up
        begin = time.process_time()
        module.zero_grad()
        output = run()
        loss = output.pow(2).sum() if output.ndim else output
        loss.backward()
        seconds.append(time.process_time() - begin)
    num_weights = sum(each.numel() for each in module.parameters())
    result = f"{loss:.1f} nats" if work == "transducer" else f"{num_weights / 1e6:.1f} M weights"
    print(json.dumps({"cpu_s": statistics.median(seconds[1:]), "result": result}))


def open_blocks(side: str) -> Any:
    rows, lens_N = torch.randn(N, T, D), torch.full((N,), T)
    if side == "asrtool":
        from asrtool.models.encoders.conformer import distances

        blocks = asrtool_conformer().blocks
        others = distances(T, rows), torch.zeros(N, T, dtype=torch.bool)
        return blocks, lambda: functools.reduce(lambda rows, block: block(rows, *others), blocks, rows)
    if side == "torchaudio":
        from torchaudio.models import Conformer

        encoder = Conformer(D, 4, 1024, BLOCKS, 31, dropout=0.1)
        return encoder, lambda: encoder(rows, lens_N)[0]
    if side == "espnet":
        encoder = espnet_conformer(D, None)
        return encoder, lambda: encoder(rows, lens_N)[0]
    blocks, positions = speechbrain_blocks()
    return blocks, lambda: blocks(rows, pos_embs=positions(rows))[0]


def open_conformer(side: str) -> Any:
    feats = torch.randn(N, 4 * T, 80)
    if side == "asrtool":
        encoder, lens_N = asrtool_conformer(), torch.full((N,), 4 * T)
        return encoder, lambda: encoder(feats, lens_N)[0]
    if side == "espnet":
        encoder, lens_N = espnet_conformer(80, "conv2d"), torch.full((N,), 4 * T)
        return encoder, lambda: encoder(feats, lens_N)[0]
    from speechbrain.lobes.models.convolution import ConvolutionFrontEnd

    front = ConvolutionFrontEnd(feats.shape, 2, 1, (D, D), (3, 3), (2, 2), residuals=(False, False))
    linear = nn.Linear(front(feats).flatten(2).shape[2], D)
    blocks, positions = speechbrain_blocks()

    def run() -> Any:
        rows = linear(front(feats).flatten(2))
        return blocks(rows, pos_embs=positions(rows))[0]

    return nn.ModuleList([front, linear, blocks]), run


def asrtool_conformer() -> Any:
    from asrtool.models.encoders.conformer import Conformer
    from asrtool.settings.models import Conformer as Settings

    return Conformer(Settings(num_layers=BLOCKS), 80)


def speechbrain_blocks() -> tuple[Any, Any]:
    from speechbrain.lobes.models.transformer.Conformer import ConformerEncoder
    from speechbrain.nnet.attention import RelPosEncXL

    blocks = ConformerEncoder(BLOCKS, D, 1024, 4, kernel_size=31, dropout=0.1, attention_type="RelPosMHAXL")
    return blocks, RelPosEncXL(D)


def espnet_conformer(num_features: int, input_layer: str | None) -> Any:
    from espnet2.asr.encoder.conformer_encoder import ConformerEncoder

    sizes = {"output_size": D, "attention_heads": 4, "linear_units": 1024, "num_blocks": BLOCKS}
    return ConformerEncoder(
        num_features, **sizes, input_layer=input_layer, macaron_style=True, rel_pos_type="latest", cnn_module_kernel=31
    )


def open_transducer(side: str) -> Any:
    targets, ends = torch.randint(1, V, (N, U)), torch.tensor([[0, 0, 60, 250], [0, 0, 40, 130]]).repeat(N // 2, 1)
    if side == "asrtool":
        from asrtool.models.objectives.transducer import log_probs, transducer_loss

        logits = nn.ParameterList([torch.randn(N, T, U + 1, V)])
        return logits, lambda: transducer_loss(*log_probs(logits[0], targets), ends[:, 3], ends[:, 2], True)
    import k2

    others: Any = {"boundary": ends, "rnnt_type": "modified", "reduction": "sum"}
    if side == "k2":
        logits = nn.ParameterList([torch.randn(N, T, U + 1, V)])
        return logits, lambda: k2.rnnt_loss(logits[0], targets, 0, **others)
    terms = nn.ParameterList([torch.randn(N, U + 1, V), torch.randn(N, T, V)])

    def run() -> Any:
        simple, grads = k2.rnnt_loss_smoothed(*terms, targets, 0, return_grad=True, **others)
        ranges = k2.get_rnnt_prune_ranges(*grads, ends, 5)
        logits = sum(k2.do_rnnt_pruning(terms[1], terms[0], ranges))
        return simple + k2.rnnt_loss_pruned(logits, targets, ranges, 0, **others)

    return terms, run


def open_attention(side: str) -> Any:
    rows, targets, lens_N = torch.randn(N, T, D), torch.randint(1, V, (N, U)), torch.full((N,), T)
    if side == "asrtool":
        from asrtool.models.objectives.attention import Attention
        from asrtool.settings.models import Attention as Settings

        decoder = Attention(Settings(ctc_weight=0.0), D, V)
        return decoder, lambda: decoder.loss(rows, lens_N, targets, torch.full((N,), U)).total
    inputs, wanted = nn.functional.pad(targets, (1, 0)), nn.functional.pad(targets, (0, 1)).flatten()

    def loss(logits: Any) -> Any:
        return nn.functional.cross_entropy(logits.flatten(0, 1), wanted, reduction="sum", label_smoothing=0.1)

    if side == "espnet":
        from espnet2.asr.decoder.rnn_decoder import RNNDecoder

        attention = {"adim": 128, "aconv_chans": 10, "aconv_filts": 3}
        decoder = RNNDecoder(V, D, num_layers=2, hidden_size=D, dropout=0.1, att_conf=attention)
        return decoder, lambda: loss(decoder(rows, lens_N, inputs, torch.full((N,), U + 1))[0])
    from speechbrain.nnet.RNN import AttentionalRNNDecoder

    embedding, output = nn.Embedding(V, D), nn.Linear(D, V)
    cells = AttentionalRNNDecoder("lstm", "location", D, 128, 2, D, D, channels=10, kernel_size=7, dropout=0.1)
    return nn.ModuleList([embedding, cells, output]), lambda: loss(
        output(cells(embedding(inputs), rows, torch.ones(N))[0])
    )


if __name__ == "__main__":
    main()
