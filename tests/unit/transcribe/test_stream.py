"""Words while audio comes in: at the end they are those of the whole recording."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import threading
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from commands import error_of, run_command, usage_error
from toy_work import FEATURES, make_work

import asrtool
from asrtool.bundle.trained import open_trained
from asrtool.decode.words import Word
from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import build_model
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice
from asrtool.settings.toml_files import load_config
from asrtool.transcribe.recogniser import open_recogniser
from asrtool.transcribe.stream import Latency, Stream, Update

RATE = 8000


def sweeps(duration_s: float, pause_s: float) -> np.ndarray:
    """Tones that change, one a second, and pauses of that length behind every fourth."""
    random = np.random.default_rng(5)
    parts = [random.normal(scale=0.001, size=RATE // 2)]
    while sum(map(len, parts)) < duration_s * RATE:
        times = np.arange(RATE) / RATE
        parts.append(0.2 * random.random() * np.sin(2 * np.pi * random.uniform(200, 2000) * times * (1 + times)))
        if len(parts) % 4 == 0:
            parts.append(random.normal(scale=0.001, size=round(pause_s * RATE)))
    return np.concatenate(parts).astype(np.float32)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_work(tmp_path_factory.mktemp("toy") / "work", "global", bidirectional=False)


@pytest.mark.parametrize("pause_s", [1.5, 0.3], ids=["pauses", "cut without pause"])
@pytest.mark.parametrize("block_s", [0.1, 0.73])
def test_final_words_are_those_of_the_whole_recording(
    pause_s: float, block_s: float, work: Path, tmp_path: Path
) -> None:
    samples = sweeps(30.0, pause_s)
    soundfile.write(tmp_path / "a.wav", samples, RATE, "FLOAT")
    size = round(block_s * RATE)
    with asrtool.load(work) as whole, open_trained(work) as trained:
        opened = open_recogniser(trained, num_jobs=1)
        expected = whole.transcribe(tmp_path / "a.wav").lines
        stream = Stream(opened, "a", RATE)
        updates = [u for i in range(0, len(samples), size) for u in stream.add(samples[i : i + size])]
        updates += stream.end()
    final = [update.words for update in updates if update.is_final]
    assert len(final) > 2
    assert [[word.text for word in words] for words in final] == [[w.text for w in line.words] for line in expected]
    times = [(word.begin_s, word.end_s) for words in final for word in words]
    assert np.allclose(times, [(word.begin_s, word.end_s) for line in expected for word in line.words], atol=1e-5)
    open_ones = [update for update in updates if not update.is_final]
    assert len(open_ones) > 20
    assert any(update.words for update in open_ones), "words are shown before a piece ends"


@pytest.mark.parametrize("settings", [{}, {"residual": True, "num_layers": 3}, {"bottleneck_size": 7}])
def test_rows_are_those_of_the_whole_utterance(settings: dict[str, int]) -> None:
    torch.manual_seed(1)
    lstm = Choice.of("encoder", "lstm", bidirectional=False, hidden_size=12, **{"num_layers": 2, **settings})
    model = build_model(Model(encoder=lstm), 20, 9).eval()
    feats_1TF = torch.randn(1, 100, 20)
    with torch.inference_mode():
        expected, _ = model(feats_1TF, torch.tensor([100]))
        state, rows = None, []
        for begin, end in ((0, 3), (3, 30), (30, 99), (99, 100)):
            scores, state = model.stream(feats_1TF[:, begin:end], state)
            rows.append(scores)
    assert torch.allclose(torch.cat(rows, dim=1), expected, atol=1e-5)


def test_models_that_need_whole_utterances_are_refused() -> None:
    for model, found in (
        (Model(encoder=Choice.of("encoder", "lstm")), "LstmEncoder with these settings needs whole utterances"),
        (Model(encoder=Choice.of("encoder", "conformer")), "Conformer with these settings needs whole utterances"),
        (Model(encoder=Choice.of("encoder", "lstm", bidirectional=False), deltas=1), "model.deltas = 1 needs later"),
    ):
        with pytest.raises(AsrtoolError, match=found):
            build_model(model, FEATURES.num_features, 9).check_streams()


def test_normalisation_of_whole_utterances_is_refused(tmp_path: Path) -> None:
    work = make_work(tmp_path / "work", "utterance", bidirectional=False)
    with open_trained(work) as trained:
        opened = open_recogniser(trained, num_jobs=1)
        with pytest.raises(AsrtoolError, match="cmvn = utterance needs whole utterances") as raised:
            Stream(opened, "a", RATE)
    advice = re.findall(r"--set (\S+)", raised.value.hint)
    needs_all = ["features.cmvn=utterance", "model.deltas=1", "model.lstm.conv_channels=8"]
    config = load_config(overrides=[*needs_all, *advice])
    assert config.features.cmvn == "global"
    build_model(config.model, config.features.num_features, 9).check_streams()


def test_a_model_that_looks_ahead_is_refused_before_anything_is_heard(tmp_path: Path) -> None:
    with open_trained(make_work(tmp_path / "work", "global", bidirectional=True)) as trained:
        opened = open_recogniser(trained, num_jobs=1)
        with pytest.raises(AsrtoolError, match="needs whole utterances"):
            Stream(opened, "a", RATE)


def test_latency_is_when_a_word_came_to_stay() -> None:
    latency = Latency()
    said = (Word("a", 0.0, 0.5, 1.0), Word("b", 0.5, 1.0, 1.0))
    latency.note(Update(said[:1], 1.0, False))
    latency.note(Update((Word("x", 0.0, 0.5, 1.0),), 1.25, False))
    latency.note(Update(said, 1.5, False))
    latency.note(Update(said, 3.0, True))
    assert latency.seconds == [1.0, 0.5]
    assert "0.75 s" in latency.describe()
    assert Latency().describe() == "no words"
    latency = Latency()  # words behind a piece that becomes final were shown when they came
    latency.note(Update(said, 1.5, False))
    latency.note(Update(said[:1], 3.0, True))
    latency.note(Update(said[1:], 3.0, True))
    assert latency.seconds == [1.0, 0.5]


def test_the_command_writes_lines_and_json(work: Path, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", sweeps(20.0, 1.5), RATE)
    words = ["transcribe", "--stream", str(work), str(tmp_path / "a.wav")]
    text = run_command(*words)
    assert "words are shown" in text.stderr
    found = [json.loads(line) for line in run_command(*words, "--format", "json").stdout.splitlines()]
    assert [one["text"] for one in found if one["final"] and one["text"]] == text.stdout.splitlines()
    assert all(a["at_s"] <= b["at_s"] for a, b in itertools.pairwise(found))
    usage_error(*words, "--format", "srt")
    for option in (["--out", str(tmp_path / "out")], ["--jobs", "2"]):
        assert "leave out --out and --jobs" in usage_error(*words, *option)


def test_a_pipe_is_never_kept_until_its_end(work: Path, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.flac", sweeps(20.0, 1.5), RATE)
    os.mkfifo(tmp_path / "pipe")
    content = (tmp_path / "a.flac").read_bytes()

    def write() -> None:
        with contextlib.suppress(BrokenPipeError):
            (tmp_path / "pipe").write_bytes(content)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    assert "while it arrives" in error_of("transcribe", "--stream", work, tmp_path / "pipe").what
    writer.join()
