"""Recognise WAV files by sherpa-onnx or faster-whisper.

recognise.py wav MANIFESTS OUT
recognise.py sherpa-onnx MODEL AUDIO
recognise.py noise MODEL
recognise.py faster-whisper MODEL AUDIO

`wav` writes the sets of the demo, `noise` random weights in the size of Whisper's tiny, which give 20 tokens.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

BATCH = 16  # files of like size at once
RATE_HZ, BINS = 8000, 40
SIZE, INNER, HEADS, LAYERS, MELS, ROWS, VOCABULARY = 384, 1536, 6, 4, 80, (1500, 448), 51_865  # of Whisper's tiny


def write_wav(manifests: Path, out: Path) -> None:
    """Copy all sets with recordings as WAV, and write every fourth utterance of train."""
    import soundfile
    from lhotse import CutSet, Recording, RecordingSet, SupervisionSet

    (out / "recordings").mkdir(parents=True)
    (out / "train").mkdir()
    shutil.copytree(manifests, out / "manifests", ignore=shutil.ignore_patterns("corpora"))
    for folder in (out / "manifests").iterdir():
        if folder.is_dir():
            recordings = []
            for recording in RecordingSet.from_file(folder / "recordings.jsonl.gz"):
                path = out / "recordings" / f"{recording.id}.wav"
                soundfile.write(path, *soundfile.read(recording.sources[0].source))
                recordings.append(Recording.from_file(path, recording.id))
            RecordingSet.from_recordings(recordings).to_file(folder / "recordings.jsonl.gz")
    train = out / "manifests" / "train"
    supervisions = SupervisionSet.from_file(train / "supervisions.jsonl.gz")
    cuts = CutSet.from_manifests(RecordingSet.from_file(train / "recordings.jsonl.gz"), supervisions)
    for cut in list(cuts.trim_to_supervisions(keep_overlapping=False))[::4]:
        cut.save_audio(out / "train" / f"{cut.supervisions[0].id}.wav")


def recognise(model: Path, audio: Path) -> None:
    """Print the number of words in a folder or one file."""
    import sherpa_onnx
    import soundfile

    recogniser = sherpa_onnx.OfflineRecognizer.from_zipformer_ctc(
        str(model / "model.onnx"), str(model / "tokens.txt"), num_threads=1, sample_rate=RATE_HZ, feature_dim=BINS
    )
    files = sorted(audio.glob("*.wav"), key=lambda path: path.stat().st_size) if audio.is_dir() else [audio]
    num_words = 0
    for first in range(0, len(files), BATCH):
        streams = []
        for path in files[first : first + BATCH]:
            stream = recogniser.create_stream()
            stream.accept_waveform(RATE_HZ, soundfile.read(path, dtype="float32")[0])
            streams.append(stream)
        recogniser.decode_streams(streams)
        num_words += sum(len(stream.result.text.split()) for stream in streams)
    print(json.dumps({"result": f"{num_words:,} words"}))


def write_noise(out: Path) -> None:
    """Write random weights for faster-whisper, and a tokenizer of a word a token."""
    import numpy as np
    from ctranslate2.specs import WhisperSpec
    from tokenizers import Tokenizer, models

    random = np.random.default_rng(1)

    def fill(layer: Any, *shape: int) -> None:
        layer.weight = 0.02 * random.standard_normal(shape, np.float32)
        layer.bias = np.zeros(shape[0], np.float32)

    def fill_norm(layer: Any) -> None:
        layer.gamma, layer.beta = np.ones(SIZE, np.float32), np.zeros(SIZE, np.float32)

    spec = WhisperSpec(LAYERS, HEADS, LAYERS, HEADS)
    fill(spec.encoder.conv1, SIZE, MELS, 3)
    fill(spec.encoder.conv2, SIZE, SIZE, 3)
    spec.decoder.embeddings.weight = 0.02 * random.standard_normal((VOCABULARY, SIZE), np.float32)
    spec.decoder.projection.weight = spec.decoder.embeddings.weight
    spec.decoder.scale_embeddings = False
    for side, num_rows in zip((spec.encoder, spec.decoder), ROWS, strict=True):
        side.position_encodings.encodings = 0.02 * random.standard_normal((num_rows, SIZE), np.float32)
        fill_norm(side.layer_norm)
        for layer in side.layer:
            attentions: list[Any] = [(layer.self_attention, (3, 1))]
            attentions += [(layer.attention, (1, 2, 1))] if side is spec.decoder else []
            for attention, widths in attentions:
                fill_norm(attention.layer_norm)
                for linear, width in zip(attention.linear, widths, strict=True):
                    fill(linear, width * SIZE, SIZE)
            fill_norm(layer.ffn.layer_norm)
            fill(layer.ffn.linear_0, INNER, SIZE)
            fill(layer.ffn.linear_1, SIZE, INNER)
    tokens = [f"t{i}" for i in range(VOCABULARY)]
    tokens[50257:50260] = "<|endoftext|>", "<|startoftranscript|>", "<|en|>"
    names = "translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"
    tokens[50358:50364] = (f"<|{name}|>" for name in names)
    spec.register_vocabulary(tokens)
    spec.config.suppress_ids = spec.config.suppress_ids_begin = []
    spec.config.alignment_heads, spec.config.lang_ids = [(1, 0)], [50259]
    spec.validate()
    out.mkdir(parents=True)
    spec.save(str(out))
    words = models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token="t0")
    Tokenizer(words).save(str(out / "tokenizer.json"))


def recognise_by_whisper(model: Path, audio: Path) -> None:
    """Print the number of segments in one file."""
    from faster_whisper import WhisperModel

    recogniser = WhisperModel(str(model), device="cpu", cpu_threads=1)
    found, _ = recogniser.transcribe(
        str(audio), language="en", beam_size=1, temperature=0.0, max_new_tokens=20, without_timestamps=True
    )
    print(json.dumps({"result": f"{len(list(found))} segment of 20 tokens"}))


COMMANDS: dict[str, Callable[..., None]] = {
    "wav": write_wav,
    "sherpa-onnx": recognise,
    "noise": write_noise,
    "faster-whisper": recognise_by_whisper,
}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*map(Path, sys.argv[2:]))
