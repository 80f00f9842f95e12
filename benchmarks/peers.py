"""Compare asrtool with what does the same work, in one table: `make bench-peers`.

    make bench-peers BENCH="--only ngram-3 score --rounds 5"
    make bench-peers BENCH="--million-words 50 --only ngram-3 ngram-4"

Sides of a work take turns. CPU seconds and peak memory of a command with its children are medians of the rounds; for
searches and encoders, seconds count the work alone. Peers are in .venv-peers and Debian's package sctk; peer_scripts/
has the scripts that use those without a command. AN4 is looked for in ../shared/data/an4. Inputs are made in the folder
once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OURS, PEERS = ROOT / ".venv" / "bin", ROOT / ".venv-peers" / "bin"
SCRIPTS, SCTK = ROOT / "benchmarks" / "peer_scripts", Path("/usr/lib/sctk/bin")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "LC_ALL": "C", "PATH": f"{SCTK}:{os.environ['PATH']}"}
WAVS, AN4_SETTINGS = 1600, ("features.speeds=1.0", "data.dev_minutes=3")
NETWORK = ("conv_channels=0", "layer_norm=false", "dropout=0.0", "num_layers=3", "hidden_size=256")
TRAINING = (
    *(f"model.lstm.{setting}" for setting in NETWORK),
    "model.ctc.consistency=0.0",
    "specaugment.num_freq_masks=0",
    "specaugment.num_time_masks=0",
    "train.batch_s=25.0",
    "train.num_threads=1",
)
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


@dataclass(frozen=True)
class Run:
    """Costs of a run of a command, and what it printed."""

    cpu_s: float
    peak_gib: float
    began: float  # seconds since 1970
    text: str

    def found(self) -> dict[str, float | str]:
        """Return the JSON of its last line, {} where it has no JSON."""
        last = self.text.strip().rpartition("\n")[2]
        found: dict[str, float | str] = json.loads(last) if last.startswith("{") else {}
        return found


@dataclass(frozen=True)
class Side:
    """A command that does a work in a folder; `result` says what came out."""

    name: str
    command: list[object]
    result: Callable[[Run], str] = lambda run: str(run.found().get("result", ""))
    makes: str = ""  # in the folder, removed before each run


@dataclass(frozen=True)
class Work:
    """A work and its sides, asrtool first."""

    title: str
    sides: list[Side]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demo", type=Path, metavar="EXP", help="the finished demo")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/asrtool-peers"), help="for inputs and outputs")
    parser.add_argument("--only", nargs="+", choices=WORKS, default=list(WORKS), metavar="WORK", help=", ".join(WORKS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--million-words", type=float, default=5.0, help="of the n-grams")
    options = parser.parse_args()
    demo, folder = options.demo.resolve(), options.folder.absolute()
    print(
        f"{versions()}\n\n| work | by | CPU s | asrtool = 1 | peak GiB | result |\n|---|---|---|---|---|---|",
        flush=True,
    )
    for name in options.only:
        place = folder / (f"{name}-{options.million_words:g}" if name.startswith("ngram") else name)
        place.mkdir(parents=True, exist_ok=True)
        for work in WORKS[name](demo, place, options.million_words):
            report(work, *measure(work, place, options.rounds))


def measure(work: Work, folder: Path, rounds: int) -> tuple[list[list[Run]], list[str]]:
    """Run the sides in turns; return their runs, and the results of the last round."""
    runs: list[list[Run]] = [[] for _ in work.sides]
    results: list[str] = []
    for _ in range(rounds):
        results = []
        for side, of_side in zip(work.sides, runs, strict=True):
            if side.makes:
                shutil.rmtree(folder / side.makes, ignore_errors=True)
                (folder / side.makes).unlink(missing_ok=True)
            of_side.append(run(side.command, folder))
            results.append(side.result(of_side[-1]))  # before the next side writes to the same place
    return runs, results


def run(command: list[object], folder: Path) -> Run:
    """Run a command; exit with what it wrote where it fails."""
    began = time.time()
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen([*map(str, command)], cwd=folder, env=ENVIRONMENT, stdout=out, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # Popen would wait once more
    if process.returncode:
        sys.exit(f"error: {' '.join(map(str, command))}\n{(folder / 'stderr').read_text(errors='replace')[-2000:]}")
    text = (folder / "stdout").read_text(encoding="utf-8", errors="replace")
    return Run(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20, began, text)


def report(work: Work, runs: list[list[Run]], results: list[str]) -> None:
    """Print the rows of a work."""
    medians = [statistics.median(float(each.found().get("cpu_s", each.cpu_s)) for each in of_side) for of_side in runs]
    for i, (side, of_side, cpu_s, result) in enumerate(zip(work.sides, runs, medians, results, strict=True)):
        peak_gib = statistics.median(each.peak_gib for each in of_side)
        cells = ["" if i else work.title, side.name, f"{cpu_s:.3g}", f"{cpu_s / medians[0]:.2f}", f"{peak_gib:.2f}"]
        print(f"| {' | '.join([*cells, result])} |", flush=True)


def versions() -> str:
    """List the versions of what is compared."""
    names = "kenlm flashlight-text pyctcdecode kaldi-native-fbank lhotse speechbrain torch torchaudio sherpa-onnx jiwer"
    code = "import importlib.metadata as m, sys; print(', '.join(f'{n} {m.version(n)}' for n in sys.argv[1:]))"
    peers = subprocess.check_output([PEERS / "python", "-c", code, *names.split(), "meeteval"], text=True).strip()
    debian = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "sctk"], capture_output=True, text=True).stdout
    return f"{peers}, sctk {debian}"


def make(path: Path, function: Callable[..., None], *arguments: object) -> None:
    """Make `path` once, in a child: memory of this process counts as a command's."""
    if path.exists():
        return
    if (pid := os.fork()) == 0:
        function(*arguments)
        os._exit(0)
    if os.waitpid(pid, 0)[1] or not path.exists():
        sys.exit(f"error: {path} was not made")


def asrtool(*words: object) -> list[object]:
    return [OURS / "asrtool", *words]


def ours(script: str, *words: object) -> list[object]:
    return [OURS / "python", SCRIPTS / script, *words]


def peer(script: str, *words: object) -> list[object]:
    return [PEERS / "python", SCRIPTS / script, *words]


def ngram(order: int) -> Callable[[Path, Path, float], Iterator[Work]]:
    def works(_: Path, folder: Path, million_words: float) -> Iterator[Work]:
        """Estimate an n-gram without cut-offs."""
        text, other = folder / "text.txt", folder / "other.txt"
        make(other, make_text, text, other, int(million_words * 1e6))
        words = ["--text", text, "--arpa", "ours.arpa", "--order", order]
        theirs = [PEERS / "lmplz", "-o", order, "-S", "1G", "-T", folder, "--text", text, "--arpa", "theirs.arpa"]

        def perplexity(arpa: str) -> Callable[[Run], str]:
            code = "import kenlm, sys; m = kenlm.Model(sys.argv[1]); t = open(sys.argv[2]).read().splitlines()"
            code += "; n = sum(len(s.split()) + 1 for s in t); print(f'{10 ** (-sum(map(m.score, t)) / n):.3f}')"
            return lambda _: f"perplexity {run([PEERS / 'python', '-c', code, arpa, other], folder).text.strip()}"

        yield Work(
            f"n-gram, order {order}, {million_words:g} M words",
            [
                Side("asrtool lm", asrtool("lm", *words), perplexity("ours.arpa"), "ours.arpa"),
                Side("lmplz -S 1G", theirs, perplexity("theirs.arpa"), "theirs.arpa"),
            ],
        )

    return works


def make_text(text: Path, other: Path, num_words: int) -> None:
    """Write sentences of phrases, which repeat by Zipf's law, and 1 % as many others."""
    rng = random.Random(5)
    types = [f"{number:x}".translate({48 + i: 112 + i for i in range(10)}) for number in range(30_000)]
    by_rank = [1 / (rank + 3) for rank in range(len(types))]
    words = iter(rng.choices(types, by_rank, k=1_000_000))
    phrases = [" ".join(next(words) for _ in range(rng.randint(1, 6))) for _ in range(200_000)]
    weights = list(sum_up(1 / (rank + 20) for rank in range(len(phrases))))
    for path, num in ((text, num_words), (other, num_words // 100)):
        with path.open("w", encoding="utf-8") as file:
            while num > 0:
                sentence = " ".join(rng.choices(phrases, cum_weights=weights, k=rng.randint(1, 5)))
                file.write(sentence + "\n")
                num -= sentence.count(" ") + 1


def sum_up(values: Iterator[float]) -> Iterator[float]:
    total = 0.0
    for value in values:
        total += value
        yield total


def beam(demo: Path, folder: Path, _: float) -> Iterator[Work]:
    """Search by CTC prefix beam; flashlight-text knows no word outside the lexicon."""
    if not (folder / "texts.json").exists():
        run(ours("beam.py", "posteriors", demo, folder), folder)
    for size in (16, 64):
        words = (demo, folder, "--beam", size)
        sides = [Side("asrtool, method beam", ours("beam.py", "asrtool", *words))]
        sides += [Side(name, peer("beam.py", name, *words)) for name in ("flashlight", "pyctcdecode")]
        yield Work(f"prefix beam of {size}, dev of the demo (234 s)", sides)


def features(demo: Path, folder: Path, _: float) -> Iterator[Work]:
    """Compute filterbanks of all sets of the demo, 1.16 hours, by one process."""
    settings = [
        "--set",
        "features.speeds=1.0",
        "--set",
        "features.num_jobs=1",
        "--set",
        "features.fbank.num_mel_bins=40",
    ]
    out, manifests = folder / "out", write_audio(demo, folder) / "manifests"

    def frames(_: Run) -> str:
        indexes = out.glob("*/index.jsonl")
        return f"{sum(json.loads(line)['num_frames'] for each in indexes for line in each.open()):,} frames"

    sides = [Side("asrtool features", asrtool("features", manifests, out, *settings), frames, "out")]
    for name in ("kaldi-native-fbank", "lhotse"):
        sides.append(Side(name, peer("fbank.py", name, manifests, out), makes="out"))
    yield Work("filterbanks, 1.16 h of 8 kHz, to disk", sides)


def training(_: Path, folder: Path, __: float) -> Iterator[Work]:
    """Train BiLSTM with CTC on AN4, an epoch."""
    an4 = ROOT.parent / "shared" / "data" / "an4"
    if not an4.is_dir():
        print(f"AN4 is not in {an4}: no training", file=sys.stderr)
        return
    work, options = folder / "an4", [word for setting in TRAINING for word in ("--set", setting)]
    if not (folder / "num_tokens").exists():
        words = [word for setting in (f"paths.an4={an4}", *AN4_SETTINGS) for word in ("--set", setting)]
        run(asrtool("run", "--recipe", "an4", *words, "--work", work, "--stop-stage", "tokenizer"), folder)
        run(ours("training.py", "batches", work / "features", work / "tokenizer", folder, *TRAINING), folder)
    formats = ["fp32"]
    if re.search("avx512_bf16|amx_bf16", Path("/proc/cpuinfo").read_text()):
        formats.append("bf16")
    for precision in formats:
        one = ["--set", "train.num_epochs=1", "--set", f"train.precision={precision}", *options]
        command = asrtool("train", work / "features", work / "tokenizer", "train", *one)
        sides = [Side("asrtool train", command, lambda run: trained(run, folder / "train"), "train")]
        for name in ("bare", "speechbrain"):
            command = peer("training.py", name, folder, "--epochs", 1, "--precision", precision)
            title = "bare torch loop" if name == "bare" else name
            sides.append(Side(title, command, lambda run: speed(run, float(run.found()["frames"]))))
        yield Work(f"BiLSTM-CTC 3 x 256 on AN4, an epoch, {precision}", sides)


def trained(run: Run, out: Path) -> str:
    records = [json.loads(line) for line in (out / "learners" / "0.jsonl").read_text().splitlines()]
    return speed(run, sum(record["frames"] for record in records), records[0]["begin"])


def speed(run: Run, frames: float, first_step: float = 0.0) -> str:
    begin_s = (first_step or float(run.found()["first_step"])) - run.began
    return f"{frames / run.cpu_s:,.0f} frames a CPU second; first step after {begin_s:.1f} s"


def conformer(_: Path, __: Path, ___: float) -> Iterator[Work]:
    """Compute steps of a conformer."""
    sides = [Side("asrtool", ours("conformer.py", "asrtool"))]
    sides += [Side(name, peer("conformer.py", name)) for name in ("torchaudio", "speechbrain")]
    yield Work("conformer of 4 blocks, a step of 4 x 10 s", sides)


def write_audio(demo: Path, folder: Path) -> Path:
    """Write the calls of the demo as WAV, which all sides read."""
    audio = folder.parent / "audio"
    if not (audio / "done").exists():
        shutil.rmtree(audio, ignore_errors=True)
        run(ours("recognise.py", "wav", demo / "manifests", audio), folder)
        (audio / "done").touch()
    return audio


def transcribe(demo: Path, folder: Path, _: float) -> Iterator[Work]:
    """Transcribe files of a few seconds, greedily."""
    wav, onnx, bundle = write_audio(demo, folder) / "train", folder / "onnx", folder / "greedy.asrtool"
    if not bundle.exists():
        run(asrtool("export", demo, onnx, "--onnx"), folder)
        run(asrtool("export", demo, bundle, "--method", "greedy"), folder)
    longest = max(wav.glob("*.wav"), key=lambda path: path.stat().st_size)

    def words(_: Run) -> str:
        return f"{sum(len(path.read_text().split()) for path in (folder / 'out').glob('*.txt')):,} words"

    yield Work(
        "transcribe a quarter of an hour in 401 files",
        [
            Side("asrtool transcribe", asrtool("transcribe", bundle, wav, "--out", "out", "--jobs", 1), words, "out"),
            Side("sherpa-onnx, same network", peer("recognise.py", "sherpa-onnx", onnx, wav)),
        ],
    )
    yield Work(
        f"transcribe a file of {longest.stat().st_size / 16000:.1f} s",
        [
            Side(
                "asrtool transcribe",
                asrtool("transcribe", bundle, longest),
                lambda run: f"{len(run.text.split())} words",
            ),
            Side("sherpa-onnx, same network", peer("recognise.py", "sherpa-onnx", onnx, longest)),
        ],
    )


def score(_: Path, folder: Path, __: float) -> Iterator[Work]:
    """Score a pair of the size of Hub5'00, by time and as plain text."""
    glm = ROOT.parent / "shared" / "data" / "sctk" / "en20030506.glm"
    make(folder / "h.ctm", make_pair, folder, random.Random(2000))
    if glm.is_file():
        shutil.copyfile(glm, folder / "g.glm")
        files = ["--ref", "r.stm", "--hyp", "h.ctm", "--glm", "g.glm", "--out", "out"]
        theirs: list[object] = ["hubscr.pl", "-V", "-l", "english", "-h", "hub5", "-g", "g.glm", "-r", "r.stm", "h.ctm"]
        yield Work(
            "score Hub5, 42,989 words",
            [
                Side("asrtool score hub5", asrtool("score", "hub5", *files), lambda _: our_counts(folder / "out")),
                Side("hubscr.pl", theirs, lambda _: counts_of_sctk((folder / "h.ctm.filt.raw").read_text())),
            ],
        )
    meeteval = ["wer", "-r", "r.seglst.json", "-h", "h.seglst.json", "--average-out", "average.json"]
    meeteval += ["--per-reco-out", "per.json"]
    sclite: list[object] = [
        "sclite",
        "-r",
        "r.trn",
        "trn",
        "-h",
        "h.trn",
        "trn",
        "-i",
        "spu_id",
        "-o",
        "rsum",
        "stdout",
    ]

    def average(_: Run) -> str:
        found = json.loads((folder / "average.json").read_text())
        return show_counts([found[key] for key in ("length", "substitutions", "deletions", "insertions")])

    def ours_of(run: Run) -> str:
        found = json.loads(run.text)["overall"]
        return show_counts([found[key] for key in ("words", "sub", "del", "ins")])

    yield Work(
        "score plain text, 42,989 words",
        [
            Side("asrtool score wer", asrtool("score", "wer", "r.trn", "h.trn", "--json"), ours_of),
            Side("sclite", sclite, lambda run: counts_of_sctk(run.text)),
            Side(
                "jiwer", [PEERS / "jiwer", "-r", "r.txt", "-h", "h.txt", "-g"], lambda run: f"WER {float(run.text):.5f}"
            ),
            Side("meeteval-wer", [PEERS / "meeteval-wer", *meeteval], average),
        ],
    )


def show_counts(counts: list[int]) -> str:
    return "{:,} words, {} sub, {} del, {} ins".format(*counts)


def our_counts(out: Path) -> str:
    counts = json.loads((out / "score.json").read_text(encoding="utf-8"))["overall"]
    return show_counts([counts[key] for key in ("words", "sub", "del", "ins")])


def counts_of_sctk(table: str) -> str:
    """Read the sums: segments, words, correct, substituted, deleted, inserted."""
    row = next(line for line in table.splitlines() if re.match(r"\W*Sum", line))
    _, words, _, *errors = [int(cell) for cell in row.replace("|", " ").split()[1:7]]
    return show_counts([words, *errors])


def make_pair(folder: Path, rng: random.Random) -> None:
    """Write r.stm with expanded contractions, h.ctm with contractions, and plain text."""
    words = draw_words(rng)
    plain: dict[str, list[tuple[str, list[str]]]] = {"r": [], "h": []}
    ends = [*sorted(rng.sample(range(1, NUM_WORDS), NUM_SEGMENTS - 1)), NUM_WORDS]
    sides = [(f"{name}_{4000 + call}", side, name) for name in ("en", "sw") for call in range(20) for side in "AB"]
    stm, ctm, start = [f";; {line}" for line in HEADER], [], 0
    for number, end in enumerate(ends):
        file, side, corpus = sides[number * len(sides) // NUM_SEGMENTS]
        text, start_s, end_s = words[start:end], start * WORD_S, end * WORD_S
        shown = [f"({word})" if rng.random() < 0.05 else word for word in text]
        stm.append(f"{file} {side} {file}_{side} {start_s:.2f} {end_s:.2f} <O,{corpus}> {' '.join(shown)}")
        heard = [*misheard(contract(text), rng, words)]
        for side_of, of_segment in (("r", text), ("h", heard)):
            plain[side_of].append((f"{file.replace('_', '')}{side}-{number:05}", of_segment))
        step_s = (end_s - start_s) / max(len(heard), 1)
        for index, word in enumerate(heard):
            time_s = start_s + index * step_s
            ctm.append(f"{file} {side} {time_s:.2f} {0.9 * step_s:.2f} {word} {rng.random():.2f}")
        start = end
    for name, lines in (("r.stm", stm), ("h.ctm", ctm)):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, segments in plain.items():
        texts = [(key, " ".join(text)) for key, text in segments]
        (folder / f"{name}.trn").write_text("".join(f"{text} ({key})\n" for key, text in texts), encoding="utf-8")
        (folder / f"{name}.txt").write_text("".join(f"{text}\n" for _, text in texts), encoding="utf-8")
        seglst = [{"session_id": key, "speaker": key, "words": text} for key, text in texts]
        (folder / f"{name}.seglst.json").write_text(json.dumps(seglst), encoding="utf-8")


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


WORKS: dict[str, Callable[[Path, Path, float], Iterator[Work]]] = {
    "ngram-3": ngram(3),
    "ngram-4": ngram(4),
    "beam": beam,
    "features": features,
    "training": training,
    "conformer": conformer,
    "transcribe": transcribe,
    "score": score,
}

if __name__ == "__main__":
    main()
