"""Files of `asrtool export --onnx`: sherpa-onnx, and asrtool without torch, find the same tokens."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from commands import error_of, run_command, usage_error
from toy_work import FEATURES, NUM_TOKENS, make_work

from asrtool.bundle.archive import write_table
from asrtool.bundle.export import export_bundle
from asrtool.bundle.sherpa import MIN_SCORE, TOLERANCE, export_onnx
from asrtool.bundle.trained import open_trained
from asrtool.data.features.feature_type import frames_of
from asrtool.errors import AsrtoolError
from asrtool.lang.phones import write_phones
from asrtool.lang.tokenizer import Tokenizer
from asrtool.models.acoustic import Encoder, build_model, load_model, save_model
from asrtool.settings.config import Config, format_toml, to_table
from asrtool.settings.data import Features
from asrtool.settings.decode import Decode
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice
from asrtool.transcribe.audio import open_sound
from asrtool.transcribe.recogniser import Recogniser, open_recogniser
from asrtool.transcribe.segments import Piece, RecordingReader

onnx = pytest.importorskip("onnx", reason="needs onnx, of the extra dev")
sherpa_onnx = pytest.importorskip("sherpa_onnx", reason="needs sherpa-onnx, of the extra dev")
pytest.importorskip("onnxruntime", reason="needs onnxruntime, of the extra dev")

RATE_HZ = 8000
LSTM = Choice.of("encoder", "lstm", num_layers=2, hidden_size=16)
ONE_WAY = Choice.of("encoder", "lstm", num_layers=1, hidden_size=16, bidirectional=False, stack_frames=4)
CONVOLVED = Choice.of("encoder", "lstm", num_layers=1, hidden_size=16, conv_channels=4)
DEEP_SPEECH = Choice.of("encoder", "deepspeech2", num_layers=1, hidden_size=16, num_channels=4)
CONFORMER = Choice.of(
    "encoder", "conformer", num_layers=1, num_heads=2, head_size=8, feed_forward_size=16, kernel_size=5
)
CTC, TRANSDUCER = Choice.of("objective", "ctc"), Choice.of("objective", "transducer", joint_size=24)


WITHOUT_TORCH = """
import sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        assert name not in ("torch", "lhotse", "onnx"), name

sys.meta_path.insert(0, Finder)
from asrtool.cli.main import main
main()
"""


class LengthAsNumber(Encoder):
    """Sizes that a traced graph keeps: the number of frames as a Python number."""

    def __init__(self, _: object, num_features: int) -> None:
        super().__init__()
        self.subsampling, self.output_size = 1, num_features

    def forward(self, feats_NTF: torch.Tensor, feat_lens_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Encode as Encoder.forward."""
        return feats_NTF * float(feats_NTF.shape[1]), feat_lens_N


def make(folder: Path, model: Model, cmvn: str = "global", features: Features = FEATURES) -> Path:
    """A work folder with a model of random weights, of which a search finds many tokens."""
    make_work(folder, cmvn)
    features = dataclasses.replace(features, cmvn=cmvn)
    # Of 12 seeds, the one without two nearly equal tokens in any row: another CPU rounds differently.
    torch.manual_seed(10)
    built = build_model(model, features.num_features, NUM_TOKENS)
    with torch.no_grad():
        for weights in built.parameters():
            weights *= 3
        if hasattr(built.objective, "output"):
            built.objective.output.bias[1] = -100  # no text has this token, and sherpa-onnx leaves it out
    _, info = load_model(folder / "average" / "model.pt")
    info |= {"model": to_table(model), "features": to_table(features), "num_features": features.num_features}
    save_model(folder / "average" / "model.pt", built, info)
    search = "greedy" if model.objective.name == "ctc" else "transducer-greedy"
    decode = Decode(methods=(Choice.of("search", search),))
    config = Config(features=features, model=model, decode=decode)
    (folder / "config" / "report.toml").write_text(format_toml(config, ("data", "features", "model", "decode")))
    (folder / "tune" / "tuning.json").write_text(f'{{"methods": {{"{search}": {{}}}}}}')
    return folder


def audio(duration_s: float) -> np.ndarray:
    """Noise of changing level and colour, (S,) float32, of which the first part is digital silence."""
    random = np.random.default_rng(3)
    samples = random.normal(size=int(duration_s * RATE_HZ))
    times = np.arange(len(samples)) / RATE_HZ
    level = 0.05 * (1 + np.sin(7 * times)) * (times > 0.3)
    tone = np.sin(2 * np.pi * 900 * times * (1 + 0.5 * np.sin(2 * times)))
    return (level * (0.3 * samples + tone)).round(4).astype(np.float32)


def ours(work: Path, samples: np.ndarray) -> list[str]:
    """Tokens by the search of the work folder, of the whole recording as one piece."""
    with open_trained(work) as trained:
        recogniser = open_recogniser(trained, num_jobs=1)
        feats_TF = frames_of(samples, RATE_HZ, recogniser.features)
        piece = Piece("caller", 0.0, len(samples) / RATE_HZ, 0.0, feats_TF)
        (scored,) = recogniser.scored([piece])
        pieces = Tokenizer.load(trained.folder / "tokenizer").pieces
    return [pieces[token] for token in tokens_of(recogniser, scored.scores_TV)]


def tokens_of(recogniser: Recogniser, scores_TV: np.ndarray) -> list[int]:
    """Tokens before words are made of them."""
    if recogniser.parameters.method == "greedy":
        best = scores_TV.argmax(axis=1).tolist()
        return [token for t, token in enumerate(best) if token and (t == 0 or best[t - 1] != token)]
    (method,) = recogniser.decoder.searches.methods.values()
    found: list[int] = []
    method.words_of = lambda spans, num_rows: found.extend(token for token, *_ in spans) or ()  # type: ignore[attr-defined]
    method.search(scores_TV, recogniser.parameters)
    return found


def theirs(folder: Path, *recordings: np.ndarray) -> list[list[str]]:
    """Tokens of sherpa-onnx, which decodes several recordings as one batch."""
    common = {"tokens": str(folder / "tokens.txt"), "sample_rate": RATE_HZ, "feature_dim": FEATURES.num_features}
    if (folder / "model.onnx").exists():
        recognizer = sherpa_onnx.OfflineRecognizer.from_zipformer_ctc(model=str(folder / "model.onnx"), **common)
    else:
        files = {name: str(folder / f"{name}.onnx") for name in ("encoder", "decoder", "joiner")}
        recognizer = sherpa_onnx.OfflineRecognizer.from_transducer(**files, **common)
    streams = [recognizer.create_stream() for _ in recordings]
    for stream, samples in zip(streams, recordings, strict=True):
        stream.accept_waveform(RATE_HZ, samples)
    recognizer.decode_streams(streams)
    return [list(stream.result.tokens) for stream in streams]


@pytest.mark.parametrize(
    ("model", "cmvn", "duration_s"),
    [
        (Model(encoder=LSTM, objective=CTC), "global", 4.0),
        (Model(encoder=LSTM, objective=CTC), "speaker", 4.0),
        (Model(encoder=LSTM, objective=CTC), "speaker", 9.03),
        (Model(encoder=ONE_WAY, objective=CTC, deltas=2), "utterance", 3.21),
        (Model(encoder=CONVOLVED, objective=CTC), "speaker", 4.0),
        (Model(encoder=DEEP_SPEECH, objective=CTC), "none", 3.0),
        (Model(encoder=CONFORMER, objective=CTC), "speaker", 8.0),
        (Model(encoder=LSTM, objective=TRANSDUCER), "speaker", 8.0),
        (Model(encoder=ONE_WAY, objective=TRANSDUCER), "utterance", 3.0),
    ],
)
def test_sherpa_onnx_finds_the_tokens_that_we_find(model: Model, cmvn: str, duration_s: float, tmp_path: Path) -> None:
    work = make(tmp_path / "work", model, cmvn)
    export_onnx(work, tmp_path / "out")
    recordings = [audio(duration_s), audio(duration_s / 2)]
    for samples, found in zip(recordings, theirs(tmp_path / "out", *recordings), strict=True):
        expected = ours(work, samples)
        assert len(set(expected)) > 5
        assert expected == [token.replace(" ", "▁") for token in found]


@pytest.mark.parametrize(
    ("model", "features", "message"),
    [
        (Model(objective=Choice.of("objective", "attention")), FEATURES, "with model.objective = attent"),
        (Model(objective=Choice.of("objective", "transducer", one_a_row=False)), FEATURES, "one_a_row = false"),
        (Model(), dataclasses.replace(FEATURES, frame_shift_ms=8.0), "with features.frame_shift_ms = 8"),
        (Model(), dataclasses.replace(FEATURES, frame_length_ms=20.0), "with features.frame_length_ms = 20"),
        (Model(encoder=Choice.of("encoder", "lstm", num_layers=1, projection_size=8)), FEATURES, "with projections"),
        (Model(encoder=Choice.of("encoder", "test_sherpa:LengthAsNumber")), FEATURES, "the length .* scores differ by"),
    ],
)
def test_what_sherpa_onnx_cannot_do_is_one_line(model: Model, features: Features, message: str, tmp_path: Path) -> None:
    work = make(tmp_path / "work", model, features=features)
    with pytest.raises(AsrtoolError, match=message) as caught:
        export_onnx(work, tmp_path / "out")
    assert "leave out --onnx" in caught.value.hint
    assert not (tmp_path / "out").exists()
    assert "\n" not in str(caught.value)


def stereo(path: Path) -> Path:
    """Write a call of two channels whose pieces differ in level, so that each is not normalised as all are."""
    one, other = audio(4.0), audio(2.6)[::-1]
    pause = np.zeros(2 * RATE_HZ, np.float32)
    left, right = np.concatenate([one, pause, 0.05 * other, pause]), np.concatenate([pause, 0.2 * other, pause, one])
    soundfile.write(path, np.stack([left, right], axis=1), RATE_HZ, "FLOAT")
    return path


@pytest.mark.parametrize("cmvn", ["speaker", "utterance", "global", "none"])
def test_transcribe_computes_the_same_scores_by_onnx(cmvn: str, tmp_path: Path) -> None:
    work, out = make(tmp_path / "work", Model(encoder=LSTM, objective=CTC), cmvn), tmp_path / "out"
    export_onnx(work, out)
    call, scores = stereo(tmp_path / "call.wav"), []
    for folder in (work, out):
        with open_trained(folder) as trained, open_sound(call) as sound:
            recogniser = open_recogniser(trained, num_jobs=1)
            pieces = [*RecordingReader(sound, recogniser.frames, (0, 1)).pieces()]
            scores.append([scored.scores_TV for scored in recogniser.scored(pieces)])
    assert len(scores[0]) >= 4
    for expected_TV, found_TV in zip(*scores, strict=True):
        np.testing.assert_allclose(np.maximum(found_TV, MIN_SCORE), np.maximum(expected_TV, MIN_SCORE), atol=TOLERANCE)


def test_transcribe_finds_the_same_words_by_onnx_without_importing_torch(tmp_path: Path) -> None:
    work, out = make(tmp_path / "work", Model(encoder=LSTM, objective=CTC), "speaker"), tmp_path / "out"
    export_onnx(work, out, ["greedy"])
    soundfile.write(tmp_path / "b.wav", audio(3.0), 11025)
    files = [str(stereo(tmp_path / "a.wav")), str(tmp_path / "b.wav")]
    with_torch = run_command("transcribe", work, *files)
    assert len(with_torch.stdout.split()) > 5, with_torch.output
    environment = {name: value for name, value in os.environ.items() if name not in ("ORT_DISABLE_TELEMETRY", "CI")}
    environment |= {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": ""}
    (tmp_path / "home").mkdir()
    for jobs in ("1", "2"):  # two processes apply the network that this one has opened
        line = [sys.executable, "-c", WITHOUT_TORCH, "transcribe", str(out), *files, "--jobs", jobs]
        done = subprocess.run(line, capture_output=True, text=True, check=True, env=environment)
        assert done.stdout == with_torch.stdout
    assert not list((tmp_path / "home").rglob("*onnxruntime*"))


def test_what_a_network_as_onnx_cannot_do_is_one_line(tmp_path: Path) -> None:
    work, out = make(tmp_path / "work", Model(encoder=LSTM, objective=CTC)), tmp_path / "out"
    export_onnx(work, out)
    soundfile.write(tmp_path / "call.wav", audio(1.0), RATE_HZ)
    streamed = ["transcribe", "--stream", str(out), str(tmp_path / "call.wav")]
    for words in (streamed, ["export", str(out), str(tmp_path / "x.asrtool")]):
        error = error_of(*words)
        assert "as ONNX" in error.what
        assert error.hint == "name the bundle or work folder that it was exported from"


def test_a_transducer_as_onnx_is_for_sherpa_onnx_alone(tmp_path: Path) -> None:
    export_onnx(make(tmp_path / "work", Model(encoder=LSTM, objective=TRANSDUCER)), tmp_path / "out")
    with pytest.raises(AsrtoolError, match="is for sherpa-onnx alone"), open_trained(tmp_path / "out"):
        pass


def test_a_damaged_network_and_one_of_another_program_are_refused(tmp_path: Path) -> None:
    work, out = make(tmp_path / "work", Model(encoder=LSTM, objective=CTC)), tmp_path / "out"
    export_onnx(work, out)
    whole = (out / "model.onnx").read_bytes()
    (out / "model.onnx").write_bytes(whole[:-1])
    for words in (["info", str(out)], ["transcribe", str(out), str(tmp_path / "call.wav")]):
        assert error_of(*words).what == f"{out}: model.onnx is damaged: its checksum does not match"
    (out / "bundle.json").unlink()
    with pytest.raises(AsrtoolError, match="out: cannot be read, No such file"), open_trained(out):
        pass
    model = onnx.load_from_string(whole)
    del model.metadata_props[:]
    for content in (whole[: len(whole) // 2], b"", model.SerializeToString()):
        (out / "model.onnx").write_bytes(content)
        write_table(out, {})
        with open_trained(out) as trained, pytest.raises(AsrtoolError, match=r"no network of .*; export it again"):
            open_recogniser(trained)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, out = make(tmp_path / "work", Model(encoder=LSTM, objective=CTC)), tmp_path / "out"
    export_onnx(work, out)
    for package, words in (("onnx", ["export", work, out, "--onnx"]), ("onnxruntime", ["transcribe", out, "a.wav"])):
        monkeypatch.setitem(sys.modules, package, None)
        error = str(error_of(*words))
        assert f"needs the package {package}, which cannot be imported here" in error
        assert error.endswith("pip install 'asrtool[onnx]'")


def test_the_command_and_the_metadata_say_how_it_is_used_also_of_a_bundle(tmp_path: Path) -> None:
    work, out = make(tmp_path / "work", Model(encoder=ONE_WAY)), tmp_path / "out"
    first, command = run_command("export", work, out, "--onnx").output.splitlines()
    assert first == f"{out}: bundle.json, config, features, model.onnx, tokenizer, tokens.txt, tune"
    options = dict(word.removeprefix("--").split("=") for word in command.split()[1:-1])
    assert options.pop("zipformer-ctc-model") == str(out / "model.onnx")
    assert options == {"tokens": str(out / "tokens.txt"), "sample-rate": "8000", "feat-dim": "20"}
    about = {each.key: each.value for each in onnx.load(out / "model.onnx").metadata_props}
    expected = {"model_type": "zipformer2_ctc", "sample_rate": "8000", "feature_dim": "20", "subsampling_factor": "4"}
    assert expected.items() <= about.items()
    assert about["exported_by"].startswith("asrtool ")
    export_bundle(work, tmp_path / "x.asrtool")
    export_onnx(tmp_path / "x.asrtool", tmp_path / "of_bundle")
    assert (tmp_path / "of_bundle" / "model.onnx").read_bytes() == (out / "model.onnx").read_bytes()


def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    assert "expected the name of a file" in usage_error("export", tmp_path, tmp_path)


def test_another_folder_of_asrtool_is_not_replaced(tmp_path: Path) -> None:
    work = make(tmp_path / "work", Model(encoder=LSTM, objective=CTC))
    before = sorted((work / "tokenizer").iterdir())
    with pytest.raises(AsrtoolError, match="tokenizer: holds other files and would be replaced"):
        export_onnx(work, work / "tokenizer")
    assert sorted((work / "tokenizer").iterdir()) == before
    for _ in range(2):  # its own it replaces
        export_onnx(work, tmp_path / "out")


def test_phones_are_refused_as_nothing_joins_them_to_words(tmp_path: Path) -> None:
    work = make(tmp_path / "work", Model(encoder=ONE_WAY))
    shutil.rmtree(work / "tokenizer")
    write_phones(work / "sentences.txt", work / "tokenizer")
    with pytest.raises(AsrtoolError, match=r"cannot recognise with tokenizer\.unit = phone"):
        export_onnx(work, tmp_path / "out")
