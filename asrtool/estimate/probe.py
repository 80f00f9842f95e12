"""What training will cost, by some seconds of made-up speech through the model that the settings describe."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from asrtool.config import Config
from asrtool.decode.forward import torch_threads
from asrtool.models.acoustic import AcousticModel, build_model
from asrtool.models.neural_lm import EDGE, UNK, build_neural_lm
from asrtool.models.topology import uses_tree
from asrtool.models.tree import Tree
from asrtool.train.precision import Precision, choose_precision
from asrtool.train.settings import Nnlm

CPU = "CPU"
LENGTH_S = 2.0  # of a made-up utterance: in shorter ones what a step costs at any length weighs too much
WARM_S = 0.5  # of one before it, on a CPU
USUAL_S = 4.0  # of one of a corpus, so that a batch has as many as in training
MOST = 24  # utterances
PHONES = 40  # tokens and leaves that every model has
TOKENS_A_S = 4.0  # about as many pieces as people say in a second
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.LSTM)


@dataclass(frozen=True)
class Probe:
    """For a second of speech, of one learner on one device."""

    device: str
    num_weights: int
    step_s: float  # forward and backward: CPU seconds, or on a GPU seconds
    forward_s: float
    flops: float  # of forward and backward, of the layers in LAYERS
    saved_bytes: float  # that the forward pass keeps for the backward one

    @property
    def is_gpu(self) -> bool:
        """Whether it was measured on one."""
        return self.device != CPU


@dataclass(frozen=True)
class NeuralProbe:
    """Of a neural language model."""

    num_weights: int
    flops: float  # of forward and backward, for a word: each weight of a matrix that takes part does so once
    words_a_row: float  # whose logits are computed


def probe_neural_lm(nnlm: Nnlm, num_words: int) -> NeuralProbe:
    """Build the model, of so many words, and count its weights."""
    with torch.device("meta"):
        model = build_neural_lm(nnlm.encoder, nnlm.output, [UNK, EDGE, *map(str, range(num_words - 2))])
    weights = list(model.parameters())
    output, channels = model.objective, model.encoder.output_size
    layers = sum(weight.numel() for weight in weights if weight.ndim > 1) - num_words * channels
    active = layers + output.words_a_row * channels
    return NeuralProbe(sum(weight.numel() for weight in weights), 3 * 2 * active, output.words_a_row)


def probe_model(config: Config, num_tokens: int) -> Probe:
    """Build the model and time it, once to warm up and once to count. Takes seconds, on a CPU for large models more."""
    precision = choose_precision(config.train.precision)
    precision.prepare_process()
    with torch.random.fork_rng(), torch_threads(1):  # CPU time with more is also that of waiting for each other
        torch.manual_seed(0)
        model = _build(config, num_tokens).to(precision.device)
        is_gpu = precision.device.type == "cuda"
        batch = _made_up(config, model, num_tokens, precision.device, LENGTH_S)
        warm = batch if is_gpu else _made_up(config, model, num_tokens, precision.device, WARM_S)
        model.train()
        _step(model, warm, precision)  # makes the kernels, on a GPU for these shapes
        forward_s, step_s, saved = _step(model, batch, precision)
        flops = 3 * _forward_flops(model, batch, precision)  # the backward pass has two products for each
    speech_s = float(batch[1].sum()) * config.features.frame_shift_ms / 1000
    return Probe(
        device=torch.cuda.get_device_name() if is_gpu else CPU,
        num_weights=sum(weight.numel() for weight in model.parameters()),
        step_s=step_s / speech_s,
        forward_s=forward_s / model.objective.views / speech_s,  # a search reads one
        flops=flops / speech_s,
        saved_bytes=saved / speech_s,
    )


def _build(config: Config, num_tokens: int) -> AcousticModel:
    tree = None
    if uses_tree(config.model.objective):
        num_leaves = config.tree.num_leaves
        tree = Tree(np.zeros((num_tokens, num_tokens, 2), dtype=np.int32), np.ones(num_leaves, dtype=np.int64))
    features = config.features
    return build_model(config.model, features.num_inputs, num_tokens, tree, features.speaker_vector)


def _made_up(
    config: Config, model: AcousticModel, num_tokens: int, device: torch.device, seconds: float
) -> tuple[Tensor, ...]:
    """Utterances of noise of so many seconds, and random targets."""
    num_utterances = int(min(max(config.train.batch_s / USUAL_S, 2), MOST))
    lens_N = torch.full((num_utterances,), int(seconds * 1000 / config.features.frame_shift_ms))
    has_leaves = model.objective.targets == "leaves"
    num_targets = int(model.encoder.output_lens(lens_N)[0]) if has_leaves else int(seconds * TOKENS_A_S)
    targets_NU = torch.randint(1, min(num_tokens, PHONES), (num_utterances, num_targets))
    feats_NTF = torch.randn(num_utterances, int(lens_N[0]), config.features.num_inputs)
    others = (feats_NTF.flip(0),) if model.objective.views == 2 else ()
    parts = (feats_NTF, lens_N, targets_NU, torch.full_like(lens_N, num_targets), *others)
    return tuple(part.to(device) for part in parts)


def _step(model: AcousticModel, batch: tuple[Tensor, ...], precision: Precision) -> tuple[float, float, int]:
    """Seconds of the forward pass, of both passes, and the bytes kept between them."""
    storages: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    model.zero_grad(set_to_none=True)
    before = _seconds(precision)
    with precision.autocast(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        total = model.loss(*batch).total
    forward_s = _seconds(precision) - before
    total.backward()
    step_s = _seconds(precision) - before
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    return forward_s, step_s, sum(size for place, size in storages.items() if place not in weights)


def _seconds(precision: Precision) -> float:
    if precision.device.type != "cuda":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def _forward_flops(model: AcousticModel, batch: tuple[Tensor, ...], precision: Precision) -> int:
    """Multiplications and additions: two for each weight and place where it is used."""
    total = 0

    def count(layer: nn.Module, _: Any, output: Any) -> None:
        nonlocal total
        made = output[0] if isinstance(output, tuple) else output
        channels = made.shape[1] if isinstance(layer, (nn.Conv1d, nn.Conv2d)) else made.shape[-1]
        matrices = sum(weight.numel() for weight in layer.parameters() if weight.ndim > 1)
        total += 2 * matrices * (made.numel() // channels)

    model.eval()  # layers that drop weights do not go through the module
    hooks = [layer.register_forward_hook(count) for layer in model.modules() if isinstance(layer, LAYERS)]
    with torch.no_grad(), precision.autocast():
        model.loss(*batch)
    for hook in hooks:
        hook.remove()
    return total
