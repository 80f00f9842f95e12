"""Time `asrtool score hub5` and SCTK's hubscr.pl on a pair of the size of Hub5'00.

    benchmarks/bench.py score GLM [--repeats 5]

Makes an stm of 80 sides, 4,459 segments and 42,989 words, and a ctm with about 13 % errors, in a temporary folder:
words by Zipf's law, one in twenty a hesitation or a back-channel, one in twenty the start of a contraction, which the
rules of the GLM (one that comes with SCTK) map; one in twenty optional. Runs the commands in turns and prints their
median wall-clock and CPU seconds, and whether the counts agree.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

NUM_SEGMENTS, NUM_WORDS, NUM_TYPES, WORD_S = 4459, 42989, 5000, 0.3
HEADER = ['LABEL "O" "Overall" ""', 'LABEL "EN" "Callhome" ""', 'LABEL "SW" "Switchboard" ""']
CONTRACTIONS = {
    "it is": "it's",
    "that is": "that's",
    "do not": "don't",
    "they are": "they're",
    "he has": "he's",
    "can not": "can't",
    "we would": "we'd",
    "i will": "i'll",
}
HESITATIONS = ["uh", "um", "uh-huh", "mhm", "huh"]
SCTK = "/usr/lib/sctk/bin"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("glm", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_pair(folder, random.Random(2000))
        (folder / "g.glm").write_text(arguments.glm.read_text(encoding="utf-8"), encoding="utf-8")
        files = ["score", "hub5", "--ref", "r.stm", "--hyp", "h.ctm", "--glm", "g.glm"]
        commands = {
            "asrtool": [str(Path(sys.executable).with_name("asrtool")), *files, "--out", "out"],
            "hubscr.pl": ["hubscr.pl", "-V", "-l", "english", "-h", "hub5", "-g", "g.glm", "-r", "r.stm", "h.ctm"],
        }
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(arguments.repeats):
            for name, command in commands.items():
                seconds[name].append(run(command, folder))
        report(seconds)
        same = our_counts(folder / "out") == counts_of_sctk(folder)
        print(f"counts equal: {same}")


def make_pair(folder: Path, rng: random.Random) -> None:
    """Write r.stm with expanded contractions, and h.ctm with contractions."""
    words = draw_words(rng)
    ends = [*sorted(rng.sample(range(1, NUM_WORDS), NUM_SEGMENTS - 1)), NUM_WORDS]
    sides = [(f"{name}_{4000 + call}", side, name) for name in ("en", "sw") for call in range(20) for side in "AB"]
    stm, ctm, start = [f";; {line}" for line in HEADER], [], 0
    for number, end in enumerate(ends):
        file, side, corpus = sides[number * len(sides) // NUM_SEGMENTS]
        text, start_s, end_s = words[start:end], start * WORD_S, end * WORD_S
        shown = [f"({word})" if rng.random() < 0.05 else word for word in text]
        stm.append(f"{file} {side} {file}_{side} {start_s:.2f} {end_s:.2f} <O,{corpus}> {' '.join(shown)}")
        heard = [*misheard(contract(text), rng, words)]
        step_s = (end_s - start_s) / max(len(heard), 1)
        for index, word in enumerate(heard):
            time_s = start_s + index * step_s
            ctm.append(f"{file} {side} {time_s:.2f} {0.9 * step_s:.2f} {word} {rng.random():.2f}")
        start = end
    for name, lines in (("r.stm", stm), ("h.ctm", ctm)):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def draw_words(rng: random.Random) -> list[str]:
    """Draw NUM_WORDS words by Zipf's law, with hesitations and words of contractions."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    types = ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(NUM_TYPES)]
    words = rng.choices(types, [1 / (rank + 3) for rank in range(NUM_TYPES)], k=NUM_WORDS)
    for index in rng.sample(range(NUM_WORDS), NUM_WORDS // 20):
        words[index] = rng.choice(HESITATIONS)
    for index in rng.sample(range(0, NUM_WORDS - 1, 2), NUM_WORDS // 20):
        words[index : index + 2] = rng.choice([*CONTRACTIONS]).split()
    return words


def contract(words: list[str]) -> list[str]:
    text = " ".join(words)
    for two, one in CONTRACTIONS.items():
        text = re.sub(rf"\b{two}\b", one, text)
    return text.split()


def misheard(text: list[str], rng: random.Random, words: list[str]) -> Iterator[str]:
    """Misrecognise: about 8 % of the words substituted, 3 % deleted, 2 % inserted."""
    for word in text:
        chance = rng.random()
        if chance > 0.03:
            yield rng.choice(words) if chance < 0.11 else word
        if chance > 0.98:
            yield rng.choice(words)


def run(command: list[str], folder: Path) -> tuple[float, float]:
    """Wall-clock and CPU seconds of a command with all its children."""
    env = {**os.environ, "LC_ALL": "C", "PATH": f"{SCTK}:{os.environ['PATH']}"}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def report(seconds: dict[str, list[tuple[float, float]]]) -> None:
    medians = {name: [statistics.median(times) for times in zip(*runs, strict=True)] for name, runs in seconds.items()}
    for name, (wall, cpu) in medians.items():
        print(f"{name:<10} wall {wall:.3f} s, CPU {cpu:.3f} s")
    clock, cpu = (theirs / ours for theirs, ours in zip(medians["hubscr.pl"], medians["asrtool"], strict=True))
    print(f"{clock:.1f} times as fast as hubscr.pl by the clock, {cpu:.1f} times in CPU time")


def our_counts(out: Path) -> list[int]:
    counts = json.loads((out / "score.json").read_text(encoding="utf-8"))["overall"]
    return list(counts.values())[:7]  # without those of characters


def counts_of_sctk(folder: Path) -> list[int]:
    table = (folder / "h.ctm.filt.raw").read_text(encoding="utf-8")
    row = next(line for line in table.splitlines() if line.split()[1:2] == ["Sum"])
    return [int(cell) for cell in row.replace("|", " ").split()[1:8]]


if __name__ == "__main__":
    main()
