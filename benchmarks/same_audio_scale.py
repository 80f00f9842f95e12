"""CPU seconds and peak memory of `asrtool prepare same-audio` by the number of utterances.

    python benchmarks/same_audio_scale.py --folder /tmp/same --utterances 236000 787000 2360000

Nearly all utterances are silent and shorter than what is looked at, so that what counts is how many there are. Of an
hour of noise in the training set half is in the development set, too, and is left out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from asrtool.data.manifests.manifest import format_line, write_sorted
from asrtool.data.manifests.sets import EvaluationSet, Sets, write_sets

RATE_HZ = 8000
A_CALL = 180  # utterances
SHORT_S, LOUD_S, LOUD_A_CALL = 0.05, 3.0, 20  # of an utterance that is not looked at, and of one that is
LOUD_CALLS = 60  # of a minute each
DEV = 6000  # utterances


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where sets are written, and removed")
    parser.add_argument("--utterances", type=int, nargs="+", default=[236_000, 787_000, 2_360_000])
    parser.add_argument("--num-jobs", type=int, default=1)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    print("| utterances | CPU s | of which children | peak GiB | of a child | left out |\n|---|---|---|---|---|---|")
    for num in options.utterances:
        folder = options.folder / str(num)
        # In a process of its own: what this one holds would count as memory of those it starts.
        make = [sys.executable, "-c", f"import same_audio_scale; same_audio_scale.make({str(folder)!r}, {num})"]
        subprocess.run(make, cwd=Path(__file__).parent, check=True)
        print(measure(folder, num, options.num_jobs), flush=True)
        shutil.rmtree(folder)


def measure(folder: Path, num: int, num_jobs: int) -> str:
    """Run the command; a row of the table."""
    report, manifests = folder / "usage.json", folder / "manifests"
    command = ["asrtool", "prepare", "same-audio", str(manifests), "--set", "data.same_audio=drop"]
    usage = [sys.executable, str(Path(__file__).with_name("usage.py")), str(report), *command]
    with (folder / "log").open("w") as log:
        subprocess.run([*usage, "--set", f"features.num_jobs={num_jobs}"], stdout=log, stderr=log, check=True)
    took = json.loads(report.read_text(encoding="utf-8"))
    dropped = json.loads((manifests / "train" / "report.json").read_text(encoding="utf-8"))["dropped"]
    cpu_s = took["cpu_s"] + took["children_cpu_s"]
    return (
        f"| {num:,} | {cpu_s:.0f} | {took['children_cpu_s']:.0f} | {took['peak_gib']:.2f} |"
        f" {took['children_peak_gib']:.2f} | {sum(dropped.values())} |"
    )


def make(folder: str, num: int) -> None:
    """Write the sets, of `num` short utterances in the training set."""
    out = Path(folder)
    out.mkdir()
    soundfile.write(out / "silence.wav", np.zeros(int(A_CALL * SHORT_S * RATE_HZ)), RATE_HZ, subtype="ULAW")
    random = np.random.default_rng(0)
    for call in range(LOUD_CALLS):
        noise_S = 0.2 * random.standard_normal(int(LOUD_A_CALL * LOUD_S * RATE_HZ))
        soundfile.write(out / f"loud{call}.wav", noise_S, RATE_HZ, subtype="ULAW")
    for name, num_of_set, loud in (("dev", DEV, LOUD_CALLS // 2), ("hub5", DEV, 0), ("train", num, LOUD_CALLS)):
        calls = [(f"{name}_{i:06d}", out / "silence.wav", SHORT_S, A_CALL) for i in range(num_of_set // A_CALL)]
        calls += [(f"{name}_loud{i:02d}", out / f"loud{i}.wav", LOUD_S, LOUD_A_CALL) for i in range(loud)]
        recordings = [recording(id_, path, length_s * size) for id_, path, length_s, size in calls]
        texts = {file: sentences(calls) for file in ("sentences.txt", "sentences.fisher.txt")}
        write_sorted(out / "manifests" / name, recordings, map(format_line, utterances(calls)), [], 1.0, texts)
    write_sets(out / "manifests", Sets((EvaluationSet("hub5"),)))


def recording(id_: str, path: Path, duration_s: float) -> dict[str, Any]:
    sources = [{"type": "file", "channels": [0], "source": str(path)}]
    num_samples = round(duration_s * RATE_HZ)
    return {
        "id": id_, "sources": sources, "sampling_rate": RATE_HZ, "num_samples": num_samples,
        "duration": num_samples / RATE_HZ, "channel_ids": [0],
    }  # fmt: skip


def utterances(calls: list[tuple[str, Path, float, int]]) -> Iterator[dict[str, Any]]:
    for id_, _, length_s, size in calls:
        for i in range(size):
            yield {
                "id": f"{id_}-{i:03d}", "recording_id": id_, "start": round(i * length_s, 3), "duration": length_s,
                "channel": 0, "text": text(id_, i), "language": "English", "speaker": f"{id_}-A",
                "custom": {"corpus": "fisher"},
            }  # fmt: skip


def sentences(calls: list[tuple[str, Path, float, int]]) -> Iterator[bytes]:
    return (f"{text(id_, i)}\n".encode() for id_, _, _, size in calls for i in range(size))


def text(id_: str, i: int) -> str:
    return f"so this is what was said in {id_} by the one who spoke {i}"


if __name__ == "__main__":
    main()
