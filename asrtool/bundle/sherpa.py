"""Export a recogniser as ONNX, for sherpa-onnx and for use without torch.

Both compute filterbanks that agree with lhotse's. The graph has the rest: normalisation, deltas, stacking of frames,
network. It is written as icefall writes its models: CTC as one file, a transducer as encoder, decoder (the predictor)
and joiner. Beside CTC are the files of its searches, as in a bundle. `asrtool transcribe` normalises features by all
of a speaker; it sets the input `is_normalised` of the graph, whose default, for sherpa-onnx, is false.

Letters in names: N utterances, T frames, F features of a frame, U last tokens, J joint values, V tokens.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from asrtool.bundle.archive import write_table
from asrtool.bundle.export import describe, search_files, with_methods
from asrtool.bundle.trained import NETWORK, TrainedRecogniser, open_trained
from asrtool.data.features.cmvn import MIN_SPEAKER_FRAMES, PRIOR_FRAMES, STD_FLOOR, Cmvn, MeanStd
from asrtool.decode.acoustic_model import AcousticModel, load_acoustic_model
from asrtool.errors import AsrtoolError, require
from asrtool.files import write_folder
from asrtool.lang.tokenizer import TOKENS_FILE, WORD_MARK, Tokenizer
from asrtool.models.files.onnx_file import INFO, IS_NORMALISED
from asrtool.models.objectives.transducer import Predictor
from asrtool.settings.data import Features
from asrtool.settings.toml_files import load_section
from asrtool.version import commit, release

ENCODER_FILE = "encoder.onnx"
DECODER_FILE, JOINER_FILE = "decoder.onnx", "joiner.onnx"
OPSET = 17  # the first that has layer normalisation
FRAME_SHIFT_MS, FRAME_LENGTH_MS = 10.0, 25.0  # of sherpa-onnx
# Frames of two utterances: the graph is made with the first, and checked with the others
MADE_WITH, CHECKED_WITH = (150, 120), (40, 61)
TOLERANCE = 1e-3  # natural logarithms of scores
MIN_SCORE = -50.0  # scores below are the same
HINT = "leave out --onnx"


class Normalised(nn.Module):
    """Module from sherpa-onnx's filterbanks to scores and their lengths."""

    mean_F: Tensor
    std_F: Tensor

    def __init__(self, model: nn.Module, cmvn: str, mean_std: MeanStd) -> None:
        """Take the kind of normalisation, `cmvn`, and statistics of the training set."""
        super().__init__()
        self.model = model
        self.cmvn = cmvn
        self.register_buffer("mean_F", torch.from_numpy(mean_std[0]))
        self.register_buffer("std_F", torch.from_numpy(mean_std[1]))

    def forward(self, x: Tensor, x_lens: Tensor, is_normalised: Tensor) -> tuple[Tensor, Tensor]:
        """Map (N, T, F) and (N,) to the scores (N, T', V) and (N,)."""
        if self.cmvn != "none":
            x = torch.where(is_normalised, x, self._normalise(x, x_lens))
        rows: tuple[Tensor, Tensor] = self.model(x, x_lens)
        return rows

    def _normalise(self, x: Tensor, x_lens: Tensor) -> Tensor:
        if self.cmvn == "global":
            return (x - self.mean_F) / self.std_F
        # As complete() of cmvn.py; here all input is one speaker. Without frames there is nothing to normalise by
        is_short = x_lens < (MIN_SPEAKER_FRAMES if self.cmvn == "speaker" else 1)
        num_prior_N = is_short.double() * PRIOR_FRAMES
        mean_N1F, std_N1F = _moments(x, x_lens, num_prior_N, self.mean_F.double(), self.std_F.double())
        return (x - mean_N1F) / std_N1F


class Decoder(nn.Module):
    """Module from the last tokens (N, U) to a prediction (N, J)."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.predictor = predictor

    def forward(self, y: Tensor) -> Tensor:
        """Embed the last tokens; sherpa-onnx uses -1 for tokens before the first."""
        predicted: Tensor = self.predictor.output(self.predictor.embedding(y.clamp(min=0)).flatten(1))
        return predicted


class Joiner(nn.Module):
    """Module from a row and a prediction, both (N, J), to logits (N, V)."""

    def __init__(self, output: nn.Linear) -> None:
        super().__init__()
        self.output = output

    def forward(self, encoder_out: Tensor, decoder_out: Tensor) -> Tensor:
        """Apply the joint network."""
        logits: Tensor = self.output((encoder_out + decoder_out).tanh())
        return logits


def export_onnx(work: Path, out: Path, methods: Sequence[str] = ()) -> str:
    """Write the folder `out` of the work folder or bundle `work`.

    It has the files of some or all search methods of a CTC model. Returns the command that runs sherpa-onnx on it.
    Raises AsrtoolError if the package onnx is missing, if sherpa-onnx has no such features or search, if a layer
    cannot be written as ONNX, and if a method was not tuned.
    """
    require("onnx", "--onnx", "pip install 'asrtool[onnx]'")
    with open_trained(work) as trained, tempfile.TemporaryDirectory(prefix="asrtool-") as unpacked:
        acoustic = load_acoustic_model(trained.model)
        features: Features = load_section("features", acoustic.info["features"], str(trained.model))
        tokenizer = trained.folder / "tokenizer"
        _check(trained, acoustic, features, Tokenizer.load(tokenizer).pieces)
        is_ctc = acoustic.objective.name != "transducer"
        with write_folder(out, NETWORK, ENCODER_FILE) as folder:
            shutil.copyfile(tokenizer / TOKENS_FILE, folder / TOKENS_FILE)
            mean_std = Cmvn(trained.cmvn_folder, "global").global_mean_std()
            whole = Normalised(acoustic.model, features.cmvn, mean_std).eval()
            about = {
                "sample_rate": features.sampling_rate_hz,
                "feature_dim": features.num_features,
                "subsampling_factor": acoustic.model.subsampling,
                "vocab_size": acoustic.info["num_tokens"],
                "exported_by": f"asrtool {release()}, {commit()}",
            }
            if is_ctc:
                about |= {"model_type": "zipformer2_ctc", INFO: json.dumps(acoustic.info)}
                _write_encoder(folder / NETWORK, whole, about, str(trained.origin))
                config = with_methods(trained, methods)
                for name, path in search_files(trained, config, Path(unpacked)).items():
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, folder / name)
                write_table(folder, describe(trained, config))
            else:
                _write_transducer(folder, whole, about, str(trained.origin))
    return _command(out, is_ctc, features)


def _check(trained: TrainedRecogniser, acoustic: AcousticModel, features: Features, pieces: Sequence[str]) -> None:
    """Raise AsrtoolError if sherpa-onnx lacks what this recogniser needs."""
    objective = acoustic.objective
    wrong = {
        f"model.objective = {objective.name}": objective.name not in ("ctc", "transducer"),
        "model.transducer.one_a_row = false": not getattr(objective.settings, "one_a_row", True),
        f"features.type = {features.type.name}": features.type.name != "fbank",
        f"features.frame_shift_ms = {features.frame_shift_ms:g}": features.frame_shift_ms != FRAME_SHIFT_MS,
        f"features.frame_length_ms = {features.frame_length_ms:g}": features.frame_length_ms != FRAME_LENGTH_MS,
        "tokenizer.unit = phone": not any(piece.startswith(WORD_MARK) for piece in pieces),
    }
    if found := [key for key, is_wrong in wrong.items() if is_wrong]:
        what = f"{trained.origin}: sherpa-onnx cannot recognise with {found[0]}"
        raise AsrtoolError(what, f"{HINT}, or train with ctc or transducer on filterbanks of 10 and 25 ms")


def _moments(x: Tensor, x_lens: Tensor, num_prior_N: Tensor, mean_F: Tensor, std_F: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and deviation (N, 1, F) of each utterance.

    They include `num_prior_N` frames with the statistics of the training set, `mean_F` and `std_F`.
    """
    is_frame = (torch.arange(x.shape[1], device=x.device) < x_lens[:, None])[:, :, None]
    exact = torch.where(is_frame, x, torch.zeros_like(x)).double()
    num_prior = num_prior_N[:, None, None]
    num = x_lens[:, None, None].double() + num_prior
    mean = (exact.sum(dim=1, keepdim=True) + num_prior * mean_F) / num
    mean_square = ((exact**2).sum(dim=1, keepdim=True) + num_prior * (mean_F**2 + std_F**2)) / num
    deviation = (mean_square - mean**2).clamp(min=0).sqrt()
    return mean.float(), deviation.float().clamp(min=STD_FLOOR)


def _write_transducer(folder: Path, whole: Normalised, about: Mapping[str, Any], origin: str) -> None:
    objective: Any = whole.model.objective
    context, size = objective.predictor.context, objective.output.in_features
    _write_encoder(folder / ENCODER_FILE, whole, {"model_type": "conformer", **about}, origin)
    decoder, joiner = Decoder(objective.predictor), Joiner(objective.output)
    y = torch.zeros(2, context, dtype=torch.int64)
    decoder_about = {"context_size": context, "vocab_size": about["vocab_size"]}
    _write(folder / DECODER_FILE, decoder, {"y": y}, {"decoder_out": {0: "N"}}, decoder_about, {"y": {0: "N"}})
    rows = {"encoder_out": torch.zeros(2, size), "decoder_out": torch.zeros(2, size)}
    axes = {name: {0: "N"} for name in rows}
    _write(folder / JOINER_FILE, joiner, rows, {"logit": {0: "N"}}, {"joiner_dim": size}, axes)


def _write_encoder(path: Path, whole: Normalised, about: Mapping[str, Any], origin: str) -> None:
    """Write the encoder.

    Raises AsrtoolError if it cannot be written, or if its scores differ from torch's for another length.
    """
    name, hint = f"{origin}: its encoder", f"{HINT}, or train another encoder, as lstm without projections"
    if any(isinstance(layer, nn.LSTM) and layer.proj_size for layer in whole.modules()):
        raise AsrtoolError(f"{name} has LSTM layers with projections, which torch does not write as ONNX", hint)
    outputs = {"log_probs": {0: "N", 1: "R"}, "log_probs_lens": {0: "N"}}
    axes = {"x": {0: "N", 1: "T"}, "x_lens": {0: "N"}, IS_NORMALISED: {}}
    made, other = (_example(frames, about["feature_dim"]) for frames in (MADE_WITH, CHECKED_WITH))
    try:
        _write(path, whole, made, outputs, about, axes)
    except (torch.onnx.errors.OnnxExporterError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise AsrtoolError(f"{name} cannot be written as ONNX: {reason}", hint) from error
    with torch.inference_mode():
        expected, lens = (each.numpy() for each in whole(*other.values()))
    if reason := _difference(path, other, expected, lens):
        raise AsrtoolError(f"{name} as ONNX depends on the length it was written with: {reason}", hint)


def _example(num_frames: Sequence[int], num_features: int) -> dict[str, Tensor]:
    """Return random utterances of these lengths, distributed as log energies."""
    random = torch.Generator().manual_seed(1)
    x = 3 * torch.randn(len(num_frames), max(num_frames), num_features, generator=random) - 8
    return {"x": x, "x_lens": torch.tensor(num_frames), IS_NORMALISED: torch.tensor(False)}


def _write(
    path: Path,
    module: nn.Module,
    inputs: Mapping[str, Tensor],
    outputs: Mapping[str, Mapping[int, str]],
    about: Mapping[str, Any],
    axes: Mapping[str, Mapping[int, str]],
) -> None:
    """Trace `module` on `inputs` and write it with `about` as metadata.

    `axes` and the axes of `outputs` may have any length.
    """
    import onnx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter by tracing is deprecated; the other one unrolls LSTMs
        torch.onnx.export(
            module.eval(),
            tuple(inputs.values()),
            str(path),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes={name: dict(sizes) for name, sizes in {**axes, **outputs}.items()},
            opset_version=OPSET,
            dynamo=False,
        )
    model = onnx.load(str(path))
    onnx.helper.set_model_props(model, {key: str(value) for key, value in about.items()})
    if any(each.name == IS_NORMALISED for each in model.graph.input):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(False), IS_NORMALISED))
    onnx.checker.check_model(model)
    onnx.save(model, str(path))


def _difference(path: Path, inputs: Mapping[str, Tensor], expected: np.ndarray, lens: np.ndarray) -> str:
    """Describe the difference of ONNX's reference implementation from `expected`.

    Returns an empty text if it agrees.
    """
    from onnx.reference import ReferenceEvaluator

    graph: Any = ReferenceEvaluator(str(path))
    try:
        with np.errstate(all="ignore"):  # logarithms of probabilities that underflow
            found, found_lens = graph.run(None, {name: inputs[name].numpy() for name in ("x", "x_lens")})
    except Exception as error:  # operators raise anything for wrong shapes
        return str(error).strip().partition("\n")[0]
    if found.shape != expected.shape or list(found_lens) != list(lens):
        return f"{list(found_lens)} rows instead of {list(lens)}"
    is_row = np.arange(expected.shape[1])[None, :, None] < lens[:, None, None]
    most = float(np.abs(np.where(is_row, np.maximum(found, MIN_SCORE) - np.maximum(expected, MIN_SCORE), 0)).max())
    return "" if most <= TOLERANCE else f"scores differ by {most:g}"


def _command(out: Path, is_ctc: bool, features: Features) -> str:
    """Return a command line of sherpa-onnx."""
    if is_ctc:
        models = f"--zipformer-ctc-model={out / NETWORK}"
    else:
        models = f"--encoder={out / ENCODER_FILE} --decoder={out / DECODER_FILE} --joiner={out / JOINER_FILE}"
    rates = f"--sample-rate={features.sampling_rate_hz} --feat-dim={features.num_features}"
    return f"sherpa-onnx-offline {models} --tokens={out / TOKENS_FILE} {rates} AUDIO.wav"
