"""Make a small run and its bundle by the command of an older release.

    git worktree add ../old cd51305 && make -C ../old setup
    .venv/bin/python tests/old_files.py ../old/.venv/bin/asrtool tests/fixtures/old_files.tar.gz

The recordings are tones, and are not kept: tests make them again.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import soundfile

RATE_HZ = 8000
WORD_HZ = {"bravo": 400, "delta": 700, "foxtrot": 1100, "whisky": 1700, "juliet": 2500}
SETTINGS = """
[data]
train = ["own"]
test = ["own"]
dev_minutes = 0.1
segment_padding_s = 0.0
[features]
num_jobs = 1
speeds = [1.0]
cmvn = "global"
sampling_rate_hz = 8000
[features.fbank]
num_mel_bins = 16
[tokenizer]
vocab_size = 38
[lm]
order = 2
[model.lstm]
num_layers = 1
hidden_size = 16
bidirectional = false
dropout = 0.0
[train]
num_epochs = 20
batch_s = 5.0
peak_lr = 0.02
save_every_steps = 10
keep_last = 2
num_threads = 1
precision = "fp32"
[average]
num = 1
[decode]
methods = ["greedy", "graph"]
num_jobs = 1
[decode.graph]
lm_weights = [0.5]
"""
RUN = "run --recipe own --config old.toml --work exp"
PATHS = "--set paths.own_train=data/train --set paths.own_test=data/test"
# Large, or of no later command.
UNUSED = (
    "check",
    "logs",
    "report",
    "RESULTS.html",
    "tensorboard",
    ".lock",
    "step-00000119.pt",
)  # large, or of no later command


def main() -> None:
    asrtool, archive = (Path(path).absolute() for path in sys.argv[1:])
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_tones(folder / "data")
        (folder / "old.toml").write_text(SETTINGS)
        for line in (f"{RUN} {PATHS}", "export exp old.asrtool"):
            subprocess.run([asrtool, *line.split()], cwd=folder, check=True)
        shutil.rmtree(folder / "data")
        with tarfile.open(archive, "w:gz") as tar:
            for path in sorted(folder.iterdir()):
                tar.add(path, path.name, filter=lambda member: None if Path(member.name).name in UNUSED else member)


def write_tones(folder: Path) -> None:
    """Write recordings of three words each, a tone a word, and their texts.

    They lie in folder/train and folder/test.
    """
    times = np.arange(int(0.3 * RATE_HZ)) / RATE_HZ
    pause = np.zeros(RATE_HZ // 20)
    for name, num in (("train", 28), ("test", 4)):
        (folder / name).mkdir(parents=True)
        for number, words in enumerate(itertools.islice(itertools.permutations(WORD_HZ, 3), num)):
            tones = [part for word in words for part in (0.3 * np.sin(2 * np.pi * WORD_HZ[word] * times), pause)]
            soundfile.write(folder / name / f"t{number:02}.wav", np.concatenate([pause, *tones]), RATE_HZ)
            (folder / name / f"t{number:02}.txt").write_text(" ".join(words) + "\n")


if __name__ == "__main__":
    main()
