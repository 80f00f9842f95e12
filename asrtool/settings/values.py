"""Convert settings between text, TOML values and field types."""

from __future__ import annotations

import difflib
import json
import math
import sys
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from asrtool.errors import AsrtoolError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Key -> what icefall, ESPnet, NeMo, SpeechBrain, Lightning and the trainer of HuggingFace call it
OTHER_NAMES = {
    "train.peak_lr": "lr base_lr max_lr initial_lr learning_rate peak_learning_rate",
    "train.batch_s": "batch_size train_batch_size per_device_train_batch_size batch_bins batch_duration max_duration",
    "train.max_batch_s": "accum_grad accum_steps accumulate_grad_batches grad_accumulation_factor"
    " gradient_accumulation_steps",
    "train.num_epochs": "num_epochs epochs epoch max_epochs max_epoch n_epochs number_of_epochs num_train_epochs",
    "train.early_stop": "patience early_stopping early_stopping_patience",
    "train.optimizer": "optim optimizer",
    "train.adamw.weight_decay": "wd weight_decay",
    "train.schedule": "schedule scheduler lr_scheduler lr_scheduler_type sched",
    "train.one-cycle.warmup_fraction": "warmup warmup_steps warmup_ratio warm_step n_warmup_steps num_warmup_steps",
    "train.clip_norm": "grad_clip max_grad_norm gradient_clip_val clip_grad_norm gradient_clipping",
    "train.seed": "seed random_seed manual_seed",
    "train.precision": "precision use_fp16 fp16 use_bf16 bf16 amp use_amp mixed_precision",
    "train.loader_processes": "num_workers dataloader_num_workers",
    "train.log_every_steps": "log_interval logging_steps log_every_n_steps",
    "train.save_every_steps": "save_every_n save_steps save_interval",
    "train.keep_last": "keep_last_k save_total_limit keep_nbest_models",
    "train.keep_best": "save_top_k keep_nbest_models",
    "train.init_model": "init_param pretrained checkpoint init_from_pretrained_model",
    "average.num": "avg num_avg average_checkpoints",
    "distributed.num_learners": "world_size ngpu num_gpus gpus n_gpu devices num_devices nproc_per_node num_processes",
    "distributed.strategy": "strategy dist_backend",
    "tokenizer.vocab_size": "vocab_size bpe_size nbpe num_tokens token_num output_neurons",
    "model.encoder": "encoder encoder_type",
    "model.objective": "objective criterion loss",
    "model.lstm.num_layers": "num_layers n_layers num_encoder_layers encoder_layers num_blocks",
    "model.lstm.hidden_size": "hidden_size hidden_dim encoder_dim rnn_size d_model",
    "model.lstm.dropout": "dropout dropout_rate",
    "model.conformer.num_layers": "num_encoder_layers encoder_layers num_blocks",
    "model.conformer.num_heads": "attention_heads num_attention_heads n_heads nhead",
    "model.conformer.head_size": "encoder_dim attention_dim d_model",
    "model.conformer.feed_forward_size": "feedforward_dim linear_units dim_feedforward d_ffn",
    "model.conformer.kernel_size": "cnn_module_kernel conv_kernel_size",
    "model.transducer.context": "context_size",
    "model.transducer.joint_size": "joiner_dim joint_dim joint_hidden",
    "features.sampling_rate_hz": "sample_rate sampling_rate fs sample_frequency",
    "features.fbank.num_mel_bins": "n_mels num_mels feature_dim num_filters",
    "features.frame_shift_ms": "frame_shift hop_length window_stride",
    "features.frame_length_ms": "frame_length win_length window_size n_fft",
    "features.speeds": "speed_perturb perturb_speed speed_perturb_factors",
    "data.max_duration_s": "max_duration max_length max_len avoid_if_longer_than",
    "data.min_duration_s": "min_duration min_length avoid_if_shorter_than",
    "specaugment.num_freq_masks": "freq_masks num_feature_masks",
    "specaugment.num_time_masks": "time_masks num_frame_masks",
    "specaugment.max_freq_bins": "freq_width features_mask_size",
    "specaugment.max_time_frames": "time_width frames_mask_size",
    "augment.noise_dir": "musan enable_musan noise_scp",
    "augment.reverb_dir": "rir rir_scp",
    "lm.order": "ngram ngram_order ngram_num",
    "decode.methods": "decoding_method decoding_strategy",
    "decode.beam.lm_weights": "lm_weight lm_scale ngram_lm_scale lmwt",
    "decode.beam.beam_sizes": "beam beam_size beam_width num_beams",
    "decode.beam.word_penalties": "word_penalty word_ins_penalty penalty",
    "paths.own_train": "train_dir train_set train_data train_manifest manifest_filepath train_csv data_folder",
    "paths.own_dev": "dev_dir valid_dir dev_set valid_set valid_data validation_manifest valid_csv",
    "paths.own_test": "test_dir eval_dir test_set test_sets test_data test_csv",
    "--work": "exp_dir expdir output_dir output_folder save_folder save_dir",
}
ALL = "asrtool config lists all settings"
KINDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


class TextValue(str):
    """A value from the command line, whose type the field decides."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read the tables of a TOML file; AsrtoolError naming file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AsrtoolError(f"{path}: no readable configuration file", "give a .toml file with --config") from error
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, lists in each other
        raise AsrtoolError(f"{path}: not TOML: {error}", "fix the line named; text needs quotes") from error


def parse_override(override: str) -> tuple[tuple[str, ...], TextValue]:
    """Split ``section.key=value`` or ``section.table.key=value``.

    Raises AsrtoolError when it has another form.
    """
    key, equals, text = override.partition("=")
    parts = tuple(part.strip() for part in key.split("."))
    if not equals or len(parts) not in (2, 3) or not all(parts):
        raise AsrtoolError(
            f"--set {override}: expected section.key=value",
            (other_name(key) if equals else "")
            or "for example --set train.num_epochs=3 or --set model.lstm.num_layers=4",
        )
    return parts, TextValue(text.strip())


def convert(value: Any, kind: Any, where: str) -> Any:
    """Convert `value` (from TOML, or a TextValue) to `kind`.

    `kind` is int, float, str, bool, or tuple[one of these, ...]. Raises AsrtoolError that begins with `where` if it
    does not fit.
    """
    if typing.get_origin(kind) is tuple:
        item_kind = typing.get_args(kind)[0]
        if isinstance(value, TextValue):
            value = _split(value)
        if not isinstance(value, list):
            raise _wrong_type(value, f"a list, each item {KINDS[item_kind]}", where)
        return tuple(convert(item, item_kind, where) for item in value)
    if isinstance(value, TextValue):
        return _from_text(value, kind, where)
    if kind is float and type(value) is int:
        value = float(value) if abs(value) < 2**1000 else math.inf
    if type(value) is not kind:
        raise _wrong_type(value, KINDS[kind], where)
    return _finite(value, where)


def check_kind(kind: Any, where: str) -> None:
    """Raise AsrtoolError that begins with `where` if `convert` lacks the type."""
    item_kind = typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else kind
    if item_kind not in KINDS:
        raise AsrtoolError(
            f"{where} is a {kind}, expected one of {', '.join(known.__name__ for known in KINDS)} or a tuple of it",
            "change the type in the Settings class",
        )


def _split(text: str) -> list[TextValue]:
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    return [TextValue(item.strip()) for item in text.split(",") if item.strip()]


def _from_text(text: str, kind: Any, where: str) -> Any:
    text = str(text)
    if kind is str:
        quoted = len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'"
        return text[1:-1] if quoted else text
    if kind is bool:
        if text not in ("true", "false"):
            raise _wrong_type(text, KINDS[bool], where)
        return text == "true"
    try:
        return _finite(kind(text), where)
    except ValueError:
        raise _wrong_type(text, KINDS[kind], where) from None


def _finite(value: Any, where: str) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise _wrong_type(value, "a finite number", where)
    return value


def _wrong_type(value: Any, expected: str, where: str) -> AsrtoolError:
    return AsrtoolError(f"{where} is {value!r}, expected {expected}", "correct the value")


def format_value(value: Any) -> str:
    """Format `value` as TOML."""
    if isinstance(value, tuple):
        return "[" + ", ".join(format_value(item) for item in value) + "]"
    # A JSON text is a TOML text but for two things: surrogate pairs (so non-ASCII stays as it is) and DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def format_override(key: str, value: Any) -> str:
    """Format ``section.key=value`` for parse_override and convert."""
    return f"{key}={value if isinstance(value, str) else format_value(value)}"


def format_key(name: str) -> str:
    """Format a key for TOML, quoted if needed."""
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else format_value(name)


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return ``section.key`` or ``section.table.key`` -> value as in JSON."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = list(value) if isinstance(value, tuple) else value
    return flat


def nearest(word: str, words: Iterable[str], cutoff: float = 0.6) -> str:
    """Return a hint with the most similar of `words`, or ''."""
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=cutoff)
    return f"did you mean {close[0]}?" if close else ""


def nearest_key(key: str, known: Iterable[str], names: Mapping[str, str] = OTHER_NAMES) -> str:
    """Return a hint for an unknown `key`: our name for it, or a near one."""
    by_last: dict[str, list[str]] = {}
    for full in known:
        by_last.setdefault(full.rpartition(".")[2], []).append(full)
    section, _, last = key.rpartition(".")
    if last not in by_last or not section:
        theirs = " ".join(names.values()).split()
        last = (difflib.get_close_matches(last.lower().replace("-", "_"), [*by_last, *theirs], n=1) or [""])[0]
        if hint := other_name(f"{section}.{last}", names):
            return hint
    close = difflib.get_close_matches(key, by_last.get(last, ()), n=1, cutoff=0)
    return f"did you mean {close[0]}?" if close else ""


def other_name(key: str, names: Mapping[str, str] = OTHER_NAMES) -> str:
    """Return a hint for a `key` of another toolkit, or ''."""
    section, _, last = key.strip().rpartition(".")
    last = last.lower().replace("-", "_")
    ours = [name for name, theirs in names.items() if last in theirs.split()]
    if section == "nnlm":
        ours = [name.replace("train.", "nnlm.") for name in ours]
    if not ours:
        return ""
    if ours[0].startswith("-"):
        return f"did you mean {ours[0]}?"
    return f"did you mean {' or '.join(ours)}? asrtool config {ours[0]} explains it"
