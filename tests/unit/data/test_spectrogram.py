"""Log power spectra against NumPy, and the configurations that take them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from asrtool.data.features.feature_type import PowerSpectrum
from asrtool.models.acoustic import build_model
from asrtool.settings.config import Config, check_conflicts
from asrtool.settings.data import Features
from asrtool.settings.schema import Choice
from asrtool.settings.toml_files import load_config
from asrtool.train.derived_settings import hybrid_settings

CONF = Path(__file__).parents[3] / "recipes/swbd/conf"


def settings(rate_hz: int, length_ms: float) -> Features:
    return Features(Choice.of("features", "spectrogram"), sampling_rate_hz=rate_hz, frame_length_ms=length_ms)


@pytest.mark.parametrize(
    ("rate_hz", "length_ms", "num"), [(16000, 20.0, 161), (8000, 20.0, 81), (8000, 25.0, 101), (11025, 25.0, 138)]
)
def test_a_frame_has_the_log_power_of_each_frequency_of_its_window(rate_hz: int, length_ms: float, num: int) -> None:
    features = settings(rate_hz, length_ms)
    assert features.num_features == num
    samples_S = np.random.default_rng(1).standard_normal(rate_hz).astype(np.float32) / 10
    feats_TF = PowerSpectrum(features).extract(samples_S)
    assert feats_TF.shape == (100, num)
    length, shift = int(rate_hz * length_ms / 1000), rate_hz // 100
    for frame in range(2, 98):  # the first and last reach beyond the samples
        begin = frame * shift + shift // 2 - length // 2
        window = samples_S[begin : begin + length].astype(float) * np.hamming(length)
        expected = np.log(np.abs(np.fft.rfft(window)) ** 2)
        np.testing.assert_allclose(feats_TF[frame], expected, atol=2e-3)


@pytest.mark.parametrize("name", ["deepspeech2", "conformer", "lstm_paper", "transducer", "attention"])
def test_each_system_is_laid_over_each_size_and_its_model_can_be_built(name: str) -> None:
    for base in ("swb300", "swb2000", "mini"):
        config = load_config([CONF / f"{base}.toml", CONF / f"{name}.toml"])
        check_conflicts(config)
    small = [f"model.{config.model.encoder.table}.num_layers=1"]
    config = load_config([CONF / f"{base}.toml", CONF / f"{name}.toml"], small)
    model = build_model(config.model, config.features.num_features, config.tokenizer.vocab_size)
    assert config.model.encoder.name in (name, "lstm")
    assert sum(parameter.numel() for parameter in model.parameters()) > 100_000
    assert (config.features.type.name == "spectrogram") == (name == "deepspeech2")


def test_systems_of_several_files_are_what_they_say() -> None:
    """The papers' hybrid, the best attention model, and LF-MMI behind models that are trained as long as the base."""

    def laid_over(*names: str) -> Config:
        config = load_config([CONF / f"{name}.toml" for name in names])
        check_conflicts(config)
        return config

    hybrid = laid_over("swb2000", "hybrid", "lstm_paper")
    assert (hybrid.tree.num_leaves, hybrid.model.objective.settings.piece_frames) == (32000, 21)
    assert (hybrid.model.encoder.settings.weight_drop, hybrid.model.encoder.settings.dropout) == (0, 0)
    attention = laid_over("swb300", "attention", "attention_paper")
    encoder, decoder = attention.model.encoder.settings, attention.model.objective.settings
    assert (encoder.num_layers, encoder.hidden_size, encoder.residual, decoder.hidden_size) == (8, 768, True, 768)
    assert attention.train.sequence_noise
    assert attention.train.optimizer.settings.nesterov
    for base in ("swb300", "swb2000", "mini"):
        plain, mmi = laid_over(base).train, hybrid_settings(laid_over(base, "hybrid_mmi")).train
        assert (mmi.num_epochs, mmi.peak_lr) == (plain.num_epochs, plain.peak_lr)
