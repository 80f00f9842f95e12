"""Recognise WAV files by sherpa-onnx with a CTC network that asrtool exported.

recognise.py wav MANIFESTS OUT          # by asrtool: one WAV file an utterance of the training set
recognise.py sherpa-onnx MODEL AUDIO
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

BATCH = 16  # files of like size at once
RATE_HZ, BINS = 8000, 40


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


if __name__ == "__main__":
    (write_wav if sys.argv[1] == "wav" else recognise)(Path(sys.argv[2]), Path(sys.argv[3]))
