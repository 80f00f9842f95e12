"""Measure the cost of training on some seconds of synthetic speech.

Encoder and objective are timed apart. The cost of a row hardly depends on the length of an utterance, so short ones
do. The sums of a transducer grow with rows times tokens, and a decoder takes a step for each token, so the objective
gets utterances as long as the corpus's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from asrtool.data.workers.processes import torch_threads
from asrtool.models.acoustic import AcousticModel, build_model
from asrtool.models.lm.neural_lm import EDGE, UNK, build_neural_lm
from asrtool.models.objectives.decision_tree import FURTHER, SILENCE, Tree
from asrtool.models.objectives.topology import uses_tree
from asrtool.models.precision import Precision, choose_precision
from asrtool.settings.config import Config
from asrtool.settings.train import Nnlm
from asrtool.train.optimisation.optimizer import build_optimizer

Batches = Callable[[float], tuple[Callable[[], Tensor], float]]  # length in seconds -> what is run, seconds of speech
CPU = "CPU"
LENGTH_S = 2.0  # length of a synthetic utterance for the encoder; in shorter ones a step's fixed cost weighs too much
WARM_S = 0.5  # length of the warm-up utterance on a CPU
MAX_SPEECH_S = 48.0  # longest batch of speech
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.LSTM)
# Synthetic n-gram of sequence training: successors of two tokens, and tokens of a sentence.
NUM_CHOICES, NUM_SENTENCES, SENTENCE = 20, 3000, 50


@dataclass(frozen=True)
class Speech:
    """Typical utterances of a corpus."""

    length_s: float  # mean over all seconds, in which long utterances have more of them
    tokens_a_s: float


@dataclass(frozen=True)
class Cost:
    """Cost of a part of a model in training, for a second of speech."""

    forward_s: float  # CPU seconds, or on a GPU seconds
    step_s: float  # forward and backward
    flops: float  # operations of both passes in the layers of LAYERS
    saved_bytes: float  # activations kept for the backward pass


@dataclass(frozen=True)
class Probe:
    """Cost of training for one learner on one device."""

    device: str
    num_weights: int
    encoder: Cost
    objective: Cost
    update_s: float = 0.0  # seconds of clipping and the optimizer, for a step of any size

    @property
    def is_gpu(self) -> bool:
        """True if measured on a GPU."""
        return self.device != CPU

    @property
    def whole(self) -> Cost:
        """Cost of both parts."""
        return Cost(*map(sum, zip(astuple(self.encoder), astuple(self.objective), strict=True)))


@dataclass(frozen=True)
class NeuralProbe:
    """Cost of a neural language model."""

    num_weights: int
    flops: float  # operations of forward and backward for a word, by the weights of the matrices used
    words_a_row: float  # whose logits are computed


def probe_neural_lm(nnlm: Nnlm, num_words: int) -> NeuralProbe:
    """Build the model for `num_words` and count its weights."""
    with torch.device("meta"):
        model = build_neural_lm(nnlm.encoder, nnlm.output, [UNK, EDGE, *map(str, range(num_words - 2))])
    weights = list(model.parameters())
    output, channels = model.objective, model.encoder.output_size
    layers = sum(weight.numel() for weight in weights if weight.ndim > 1) - num_words * channels
    active = layers + output.words_a_row * channels
    return NeuralProbe(sum(weight.numel() for weight in weights), 3 * 2 * active, output.words_a_row)


def probe_model(config: Config, num_tokens: int, speech: Speech) -> Probe:
    """Build the model and time it after a warm-up; takes seconds, on a CPU longer."""
    precision = choose_precision(config.train.precision)
    precision.prepare_process()
    with torch.random.fork_rng(), torch_threads(1):  # CPU time with more is also that of waiting for each other
        torch.manual_seed(0)
        tree = _made_up_tree(num_tokens, config.tree.num_leaves) if uses_tree(config.model.objective) else None
        features = config.features
        model = build_model(config.model, features.num_features, num_tokens, tree)
        model = model.to(precision.device).train()
        if tree:
            model.objective.prepare(_sentences(num_tokens))
        encoder = _cost_of_encoder(config, model, precision)
        objective = _cost_of_objective(config, model, tree, num_tokens, speech, precision)
        update_s = _update_s(config, model, precision)
    device = torch.cuda.get_device_name() if precision.device.type == "cuda" else CPU
    return Probe(device, sum(weight.numel() for weight in model.parameters()), encoder, objective, update_s)


def _made_up_tree(num_tokens: int, num_leaves: int) -> Tree:
    """Return a tree with random pdfs for contexts."""
    leaves_a_token = max(1, (num_leaves - 1) // (2 * (num_tokens - 1)))
    leaves_VV2 = np.random.default_rng(0).integers(0, leaves_a_token, (num_tokens, num_tokens, 2), dtype=np.int32)
    leaves_VV2 += 1 + leaves_a_token * (2 * np.arange(-1, num_tokens - 1, dtype=np.int32)[:, None] + np.arange(2))
    leaves_VV2[:, SILENCE] = SILENCE
    return Tree(leaves_VV2, np.ones(max(num_leaves, int(leaves_VV2.max()) + 1), dtype=np.int64))


def _sentences(num_tokens: int) -> np.ndarray:
    """Return sequences with NUM_CHOICES tokens after each pair: a full denominator."""
    random = np.random.default_rng(0)
    next_VVC = random.integers(0, num_tokens, (num_tokens, num_tokens, NUM_CHOICES))
    tokens_SU = np.zeros((NUM_SENTENCES, SENTENCE), dtype=np.int64)
    for u in range(2, SENTENCE):
        chosen_S = random.integers(0, NUM_CHOICES, NUM_SENTENCES)
        tokens_SU[:, u] = next_VVC[tokens_SU[:, u - 2], tokens_SU[:, u - 1], chosen_S]
    return tokens_SU


def _cost_of_encoder(config: Config, model: AcousticModel, precision: Precision) -> Cost:
    """Return the cost of the encoder, measured on noise."""
    views, shift_s = model.objective.views, config.features.frame_shift_ms / 1000
    length_s = getattr(config.model.objective.settings, "piece_frames", 0) * shift_s or LENGTH_S

    def on(seconds: float) -> tuple[Callable[[], Tensor], float]:
        num_utterances = views * max(2, int(min(config.train.batch_s, MAX_SPEECH_S) / length_s))
        lens_N = torch.full((num_utterances,), int(seconds / shift_s), device=precision.device)
        feats_NTF = torch.randn(num_utterances, int(lens_N[0]), config.features.num_features, device=precision.device)
        return lambda: model.encoder(model.inputs(feats_NTF, lens_N), lens_N)[0], float(lens_N.sum()) * shift_s / views

    return _cost(model, on, length_s, precision)


def _cost_of_objective(
    config: Config, model: AcousticModel, tree: Tree | None, num_tokens: int, speech: Speech, precision: Precision
) -> Cost:
    """Measure the objective on rows of noise and random targets."""
    views, shift_s = model.objective.views, config.features.frame_shift_ms / 1000
    num_utterances = max(2, int(min(config.train.batch_s, MAX_SPEECH_S) / speech.length_s))
    random = np.random.default_rng(0)
    with torch.no_grad(), precision.autocast():
        one_NTF = torch.zeros(1, 8, config.features.num_features, device=precision.device)
        lens_1 = torch.full((1,), 8, device=precision.device)
        kind = model.eval().encoder(model.inputs(one_NTF, lens_1), lens_1)[0].dtype
    model.train()

    def on(seconds: float) -> tuple[Callable[[], Tensor], float]:
        frames_N = torch.full((num_utterances,), int(seconds / shift_s))
        lens_N = model.encoder.output_lens(frames_N)
        num_rows, num = int(lens_N[0]), max(1, round(seconds * speech.tokens_a_s))
        targets_NU = torch.from_numpy(random.integers(1, num_tokens, (num_utterances, num)))
        if tree:
            leaves_V = torch.from_numpy(tree.leaves_VV2[SILENCE, :, FURTHER].astype(np.int64))
            targets_NU = leaves_V[targets_NU[:, torch.arange(num_rows) * num // num_rows]]
        hidden_NTC = torch.randn(views * num_utterances, num_rows, model.encoder.output_size).to(precision.device, kind)
        hidden_NTC.requires_grad_()
        others = lens_N, targets_NU, torch.full_like(lens_N, targets_NU.shape[1])
        batch = hidden_NTC, *(part.to(precision.device) for part in others)
        loss = model.objective.loss_of_views if views == 2 else model.objective.loss
        return lambda: loss(*batch).total, float(frames_N.sum()) * shift_s

    return _cost(model, on, speech.length_s, precision)


def _cost(model: AcousticModel, on: Batches, length_s: float, precision: Precision) -> Cost:
    """Measure the cost of `on` for utterances of `length_s`."""
    is_gpu = precision.device.type == "cuda"
    _timed(model, on(length_s if is_gpu else min(WARM_S, length_s))[0], precision)  # makes kernels, on a GPU for shapes
    run, speech_s = on(length_s)
    forward_s, step_s, saved_bytes = _timed(model, run, precision)
    flops = 3 * _forward_flops(model, run, precision)  # the backward pass has two products for each
    return Cost(forward_s / speech_s, step_s / speech_s, flops / speech_s, saved_bytes / speech_s)


def _timed(model: AcousticModel, run: Callable[[], Tensor], precision: Precision) -> tuple[float, float, int]:
    """Return seconds of forward, and of both passes, and bytes kept between."""
    storages: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    model.zero_grad(set_to_none=True)
    before = _seconds(precision)
    with precision.autocast(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = run()
    forward_s = _seconds(precision) - before
    out.backward(torch.ones_like(out))
    step_s = _seconds(precision) - before
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    return forward_s, step_s, sum(size for place, size in storages.items() if place not in weights)


def _update_s(config: Config, model: AcousticModel, precision: Precision) -> float:
    """Return the seconds of clipping and the optimizer."""
    optimizer = build_optimizer(list(model.named_parameters()), config.train)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    before = 0.0
    for _ in range(2):  # the first one makes states
        before = _seconds(precision)
        nn.utils.clip_grad_norm_(model.parameters(), config.train.clip_norm)
        optimizer.step()
    return _seconds(precision) - before


def _seconds(precision: Precision) -> float:
    if precision.device.type != "cuda":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def _forward_flops(model: AcousticModel, run: Callable[[], Tensor], precision: Precision) -> int:
    """Return operations: a multiplication and addition for each use of a weight."""
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
        run()
    for hook in hooks:
        hook.remove()
    model.train()
    return total
