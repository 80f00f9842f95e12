"""Compute forward and backward of a conformer of 4 blocks by asrtool and others.

    conformer.py asrtool|torchaudio|speechbrain

256 channels, 4 heads, kernels of 31 rows, dropout 0.1, 4 utterances of 1,000 frames of 80 values, two convolutions of
256 channels before. torchaudio's has neither these nor positions, and gets 250 rows. Prints CPU seconds of a step.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import torch

NUM_STEPS, BLOCKS, N = 5, 4, 4


def main() -> None:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    openers = {"asrtool": open_asrtool, "torchaudio": open_torchaudio, "speechbrain": open_speechbrain}
    encoder, run = openers[sys.argv[1]]()
    seconds = []
    for _ in range(NUM_STEPS + 1):  # the first one warms up
        begin = time.process_time()
        encoder.zero_grad()
        rows = run()
        rows.pow(2).mean().backward()
        seconds.append(time.process_time() - begin)
    num_weights = sum(each.numel() for each in encoder.parameters())
    result = f"{num_weights / 1e6:.1f} M weights, {rows.shape[1]} rows"
    print(json.dumps({"cpu_s": statistics.median(seconds[1:]), "result": result}))


def open_asrtool() -> Any:
    from asrtool.models.encoders.conformer import Conformer
    from asrtool.settings.models import Conformer as Settings

    encoder = Conformer(Settings(num_layers=BLOCKS), 80)
    feats, lens_N = torch.randn(N, 1000, 80), torch.full((N,), 1000)
    return encoder, lambda: encoder(feats, lens_N)[0]


def open_torchaudio() -> Any:
    from torchaudio.models import Conformer

    encoder = Conformer(256, 4, 1024, BLOCKS, 31, dropout=0.1)
    rows, lens_N = torch.randn(N, 250, 256), torch.full((N,), 250)
    return encoder, lambda: encoder(rows, lens_N)[0]


def open_speechbrain() -> Any:
    from speechbrain.lobes.models.convolution import ConvolutionFrontEnd
    from speechbrain.lobes.models.transformer.Conformer import ConformerEncoder
    from speechbrain.nnet.attention import RelPosEncXL

    feats, two = torch.randn(N, 1000, 80), (False, False)
    front = ConvolutionFrontEnd(feats.shape, 2, 1, (256, 256), (3, 3), (2, 2), residuals=two)
    positions, linear = RelPosEncXL(256), torch.nn.Linear(front(feats).flatten(2).shape[2], 256)
    blocks = ConformerEncoder(BLOCKS, 256, 1024, 4, kernel_size=31, dropout=0.1, attention_type="RelPosMHAXL")

    def run() -> Any:
        rows = linear(front(feats).flatten(2))
        return blocks(rows, pos_embs=positions(rows))[0]

    return torch.nn.ModuleList([front, linear, blocks]), run


if __name__ == "__main__":
    main()
