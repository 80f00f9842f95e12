"""Perplexity and CPU time of `asrtool nnlm` by output and projection, on a text that lm.py generates or a given one.

    .venv/bin/python benchmarks/nnlm.py --folder /tmp/nnlm-bench [--text TRAIN DEV WORDS] [--epochs 4] [--hidden 128]

Without --text: 2,000 words with Zipf's frequencies, each with its likely followers, and 160,000 words to train on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from lm import CODE, Language, measure

NUM_KINDS = 2000  # words of the vocabulary
SIZES = {"train": 15_000, "dev": 2_000}  # sentences
LENGTHS = (2, 19)  # words of a sentence


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where texts and models go")
    parser.add_argument("--text", type=Path, nargs=3, help="sentences to train on, those of dev, words.txt")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--projections", type=int, nargs="+", default=[0, 32])
    parser.add_argument("--cutoffs", default="100,400,1000")
    parser.add_argument("--set", dest="settings", nargs="*", default=["nnlm.word-lstm.num_layers=2"])
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    texts = [str(path) for path in options.text or write_texts(options.folder)]
    print("| output | projection | perplexity of dev | s of CPU time |\n|---|---|---|---|")
    for projection in options.projections:
        for output in ("softmax", "adaptive"):
            out = options.folder / f"{output}-{projection}"
            settings = [f"nnlm.output={output}", f"nnlm.word-lstm.projection_size={projection}", *options.settings]
            settings += [f"nnlm.word-lstm.hidden_size={options.hidden}", f"nnlm.num_epochs={options.epochs}"]
            settings += ["nnlm.num_threads=1", f"nnlm.adaptive.cutoffs={options.cutoffs}"]
            cpu_s, _, _ = measure(["-c", CODE, "nnlm", *texts, str(out), *(f"--set={each}" for each in settings)])
            perplexity = json.loads((out / "train.json").read_text(encoding="utf-8"))["dev_perplexity"]
            print(f"| {output} | {projection} | {perplexity:.2f} | {cpu_s:.0f} |", flush=True)


def write_texts(folder: Path) -> list[Path]:
    """Sentences to train on, those of dev, and the vocabulary."""
    random = np.random.default_rng(5)
    language = Language(random, NUM_KINDS)
    names = np.array([f"w{number}" for number in random.permutation(NUM_KINDS)], dtype=object)
    for name, size in SIZES.items():
        lengths = random.integers(LENGTHS[0], LENGTHS[1] + 1, size)
        words = names[language.draw(size, LENGTHS[1])].tolist()
        lines = [" ".join(row[:length]) + "\n" for row, length in zip(words, lengths, strict=True)]
        (folder / f"{name}.txt").write_text("".join(lines))
    vocabulary = ["<eps>", "<unk>", *sorted(names), "#0", "<s>", "</s>"]
    (folder / "words.txt").write_text("".join(f"{word} {number}\n" for number, word in enumerate(vocabulary)))
    return [folder / name for name in ("train.txt", "dev.txt", "words.txt")]


if __name__ == "__main__":
    main()
