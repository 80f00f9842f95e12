"""Frames a second of `asrtool train` on features in a folder and at an address, and how long steps wait for batches.

The address is a web server on the loopback, in a process of its own, that takes its time before each answer. Features
are noise, rounded and stored as real ones; a step is a pause, as of a GPU that has its work. All begin with an empty
cache. `first` are the steps of the first window of shards, which nobody can fetch before; `rest` all others.

    python benchmarks/remote.py --delays-ms 0 50
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

from loading import FEATURES, write_features

from asrtool.corpus.index import WINDOW_SHARDS, write_feature_settings
from asrtool.corpus.sets import Sets, write_sets
from asrtool.lang.tokenizer import train_tokenizer

SENTENCES = "\n".join("".join("abcd"[i * k % 4] for k in range(2, 6)) + " a" for i in range(60)) + "\n"
NUM_TOKENS = 34


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delays-ms", type=float, nargs="+", default=[0.0, 50.0], help="of the server, each answer")
    parser.add_argument("--shards", type=int, default=32)
    parser.add_argument("--step-ms", type=float, default=100.0)
    parser.add_argument("--batch-s", type=float, default=120.0)
    parser.add_argument("--num-learners", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for of_set, num in (("train", options.shards), ("dev", 1)):
            (folder / "features" / of_set).mkdir(parents=True)
            write_features(folder / "features" / of_set, num)
        write_feature_settings(folder / "features", FEATURES)
        write_sets(folder / "features", Sets(()))
        (folder / "sentences.txt").write_text(SENTENCES)
        train_tokenizer(folder / "sentences.txt", folder / "tokenizer", NUM_TOKENS)
        print("| features | frames/s, rest | waiting, first | waiting, rest | requests |")
        print("|---|---|---|---|---|")
        for _ in range(options.rounds):
            for delay_ms in (None, *options.delays_ms):
                print(measure(folder, delay_ms, options), flush=True)


def measure(folder: Path, delay_ms: float | None, options: argparse.Namespace) -> str:
    """A row: an epoch in a new folder."""
    if delay_ms is None:
        return f"| folder | {train(folder, str(folder / 'features'), options)} | |"
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    server = context.Process(target=serve, args=(there, folder / "features", delay_ms / 1000))
    server.start()
    row = train(folder, here.recv(), options)
    here.send("end")
    num_requests = here.recv()
    server.join()
    return f"| http, {delay_ms:g} ms | {row} | {num_requests} |"


def serve(pipe: Connection, folder: Path, delay_s: float) -> None:
    """Until something comes through `pipe`; the number of requests is the answer."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from servers import serving

    with serving(folder, delay_s) as server:
        pipe.send(server.url)
        pipe.recv()
        pipe.send(len(server.requests))


def train(folder: Path, features: str, options: argparse.Namespace) -> str:
    """Frames a second of the rest, seconds that a learner waits in the first window, and the fraction in the rest."""
    with tempfile.TemporaryDirectory() as name:
        out, shards = Path(name) / "train", "train.shards.cache_gib=0"
        settings = [f"train.batch_s={options.batch_s}", "train.num_epochs=1", "model.lstm.hidden_size=8", shards]
        settings += ["train.log_every_steps=1", "model.lstm.num_layers=1", f"remote.cache_dir={name}/cache"]
        command = [Path(sys.executable).with_name("asrtool"), "train", features, folder / "tokenizer", out]
        command += ["--compute-ms", options.step_ms]
        if options.num_learners > 1:
            command += ["--num-learners", options.num_learners, "--strategy", "adpsgd-fixed"]
        command += [word for item in settings for word in ("--set", item)]
        done = subprocess.run(list(map(str, command)), stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        lines = [json.loads(line) for path in (out / "learners").glob("*.jsonl") for line in path.open()]
    lines.sort(key=lambda line: line["begin"])
    border = len(lines) * WINDOW_SHARDS // options.shards
    rest = lines[border:]
    span_s = rest[-1]["begin"] + rest[-1]["compute_s"] - rest[0]["begin"]
    waits_s = [sum(line["data_s"] for line in part) for part in (lines[:border], rest)]
    rate = sum(line["frames"] for line in rest) / span_s
    return f"{rate:,.0f} | {waits_s[0] / options.num_learners:.2f} s | {waits_s[1] / span_s / options.num_learners:.1%}"


if __name__ == "__main__":
    main()
