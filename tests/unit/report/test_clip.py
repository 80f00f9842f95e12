"""Audio, spectrograms and figures as a page holds them."""

from __future__ import annotations

import base64
import io
import re
from typing import Any

import matplotlib.image
import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from report_work import write_training

from asrtool.report.figures.figure import COLOURS, MAX_NAME, narrow_svg, short
from asrtool.report.figures.training_figures import FIGURES
from asrtool.report.page.worst_utterances import NUM_ROWS, NUM_SHADES, format_png, make_clip, spectrogram
from asrtool.report.training import read_training

RNG = np.random.default_rng(1)


def content(address: str, kind: str) -> io.BytesIO:
    head, _, data = address.partition(",")
    assert head == f"data:{kind};base64"
    return io.BytesIO(base64.b64decode(data))


def tone(hz: float, seconds: float, rate_hz: int) -> np.ndarray:
    return np.sin(2 * np.pi * hz * np.arange(round(seconds * rate_hz)) / rate_hz).astype(np.float32) / 2


def test_audio_is_what_was_said_a_long_one_cut_and_one_of_a_high_rate_resampled() -> None:
    samples = tone(440, 1.5, 8000)
    clip = make_clip(samples, 8000)
    heard, rate_hz = soundfile.read(content(clip.audio, "audio/flac"), dtype="float32")
    assert rate_hz == 8000
    assert np.abs(heard - samples).max() <= 2**-15
    assert (clip.seconds, clip.whole_s, clip.max_hz) == (1.5, 1.5, 4000)
    clip = make_clip(tone(1000, 20, 48_000), 48_000)
    heard, rate_hz = soundfile.read(content(clip.audio, "audio/flac"))
    assert (rate_hz, len(heard)) == (16_000, 15 * 16_000)
    assert (clip.seconds, clip.whole_s) == (15, 20)
    assert np.argmax(np.abs(np.fft.rfft(heard[:16_000]))) == 1000


@pytest.mark.parametrize("hz", [300, 1000, 3500])
def test_a_tone_is_a_line_at_its_height(hz: int) -> None:
    shades = spectrogram(tone(hz, 2, 8000), 8000)
    assert shades.shape[0] == NUM_ROWS
    assert 190 <= shades.shape[1] <= 201
    middle = shades[:, 20:-20]
    row = NUM_ROWS - 1 - int(hz / 4000 * NUM_ROWS)
    assert (np.abs(middle.argmax(axis=0) - row) <= 1).all()
    assert middle.max() == NUM_SHADES - 1


def test_silence_and_what_is_shorter_than_a_window_have_a_picture() -> None:
    assert (spectrogram(np.zeros(800, dtype=np.float32), 8000) == 0).all()
    assert spectrogram(tone(500, 0.001, 8000), 8000).shape[1] == 1
    assert spectrogram(RNG.normal(size=15 * 16_000), 16_000).shape[1] <= 400


@given(st.integers(1, 20), st.integers(1, 21))
def test_a_png_is_read_back_as_it_was(num_rows: int, num_columns: int) -> None:
    shades = RNG.integers(0, NUM_SHADES, size=(num_rows, num_columns), dtype=np.uint8)
    picture = matplotlib.image.imread(io.BytesIO(format_png(shades)))
    colours = matplotlib.colormaps["magma"](np.linspace(0, 1, NUM_SHADES), bytes=True)[:, :3]
    assert np.array_equal(np.round(picture[..., :3] * 255).astype(np.uint8), colours[shades])


# Figures


@pytest.fixture(scope="module")
def svgs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    train = tmp_path_factory.mktemp("train")
    write_training(train, num_learners=2)
    run = read_training(train)

    def draw(name: str, figure: Any) -> None:
        FIGURES[name][1](figure, run=run)

    return [narrow_svg(lambda figure, name=name: draw(name, figure), f"p{name}") for name in FIGURES]


def test_a_figure_asks_for_nothing_and_has_the_colours_of_the_page(svgs: list[str]) -> None:
    text = "".join(svgs)
    for part in ("://", "<style", "<metadata", "<!--", "font-family", "#000000"):
        assert part not in text
    assert not any(colour.lower() in text.lower() for colour in COLOURS)
    assert {"currentColor", "var(--blue)", "var(--orange)"} <= set(re.findall(r"currentColor|var\(--\w+\)", text))


def test_identifiers_are_referred_to_and_unlike_those_of_other_figures(svgs: list[str]) -> None:
    ids = [name for svg in svgs for name in re.findall(r' id="([^"]*)"', svg)]
    assert len(ids) > 5
    assert len(set(ids)) == len(ids)
    used = {name for svg in svgs for name in re.findall(r'(?:url\(|href=")#([^)"]+)', svg)}
    assert used == set(ids)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a$x$\\frac", "a$x$\\frac"),
        ("_hidden", " _hidden"),
        ("<b>&", "&lt;b&gt;&amp;"),
        ("x" * 50 + "end", f"...{'x' * (MAX_NAME - 6)}end"),
    ],
)
def test_any_name_can_stand_in_a_legend(name: str, shown: str) -> None:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot([1, 2], label=short(name))
        axes.legend()

    assert f">{shown}</text>" in narrow_svg(draw, "x")
