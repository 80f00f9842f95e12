"""A program as users of asrtool write it: mypy checks its types, and that each misuse is an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from typing_extensions import assert_type

import asrtool


def transcribe(bundle: Path, samples: Tensor) -> list[str]:
    with asrtool.load(bundle) as recogniser:
        one = recogniser.transcribe((samples, 8000), channels=1)
        assert_type([(word.text, word.begin_s) for word in one.words], list[tuple[str, float]])
        found = recogniser.transcribe_all(["a.wav", Path("b.wav"), (np.zeros(8000), 8000)])
        texts = [one.text, *(each.text for each in found)]
        recogniser.transcribe(samples)  # type: ignore[arg-type]
        recogniser.align("a.wav", ["so", "what"])  # type: ignore[arg-type]
    return texts


def score_tokens(recogniser: asrtool.Recogniser, path: str) -> Iterator[Tensor]:
    model: torch.nn.Module = recogniser.model
    model = asrtool.from_bundle("model.asrtool")
    feats = torch.from_numpy(recogniser.features(path))
    scores, _ = model(feats[None], torch.tensor([len(feats)]))
    yield scores
    assert_type(recogniser.tokenizer.encode("so what"), list[int])


def rate(references: list[str], hypotheses: tuple[str, ...]) -> float:
    assert_type(asrtool.wer(references, hypotheses), float)
    assert_type(asrtool.cer("a b", "ab"), float)
    assert_type(asrtool.score_wer(references, hypotheses).overall.sub, int)
    assert_type(asrtool.load_lm("G.arpa").perplexity(references), float)
    return asrtool.wer(references, 3)  # type: ignore[arg-type]
