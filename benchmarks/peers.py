"""Compare asrtool with what does the same work, in one table: `make bench-peers`.

    make bench-peers BENCH="--only ngram-3 score --rounds 5"
    make bench-peers BENCH="--million-words 50 --only ngram-3 ngram-4"

Sides of a work take turns. CPU seconds and peak memory of a command with its children are medians of the rounds; for
searches and modules, seconds count the work alone. Peers are in .venv-peers, .venv-k2 and Debian's package sctk;
peer_scripts/ has the scripts that use those without a command. AN4 is looked for in ../shared/data/an4. Inputs are made
in the folder once.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainings import Run, options_of, run

ROOT = Path(__file__).resolve().parents[1]
OURS, PEERS, K2 = (ROOT / name / "bin" for name in (".venv", ".venv-peers", ".venv-k2"))
SCRIPTS, SCTK = ROOT / "benchmarks" / "peer_scripts", Path("/usr/lib/sctk/bin")
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "LC_ALL": "C", "PATH": f"{SCTK}:{os.environ['PATH']}"}
ENVIRONMENT["PYTHONDONTWRITEBYTECODE"] = ""  # the first round compiles the modules, as the first use of a package does
AN4_SETTINGS = ("features.speeds=1.0", "data.dev_minutes=3")
NETWORK = ("conv_channels=0", "layer_norm=false", "dropout=0.0", "num_layers=3", "hidden_size=256")
TRAINING = (
    *(f"model.lstm.{setting}" for setting in NETWORK),
    "model.ctc.consistency=0.0",
    "specaugment.num_freq_masks=0",
    "specaugment.num_time_masks=0",
    "train.batch_s=25.0",
    "train.num_threads=1",
)
FEATURES = ("features.speeds=1.0", "features.num_jobs=1", "features.fbank.num_mel_bins=40")
# Perplexity of a text by KenLM with a model.
PERPLEXITY = """
import kenlm, sys
model, lines = kenlm.Model(sys.argv[1]), open(sys.argv[2]).read().splitlines()
print(f"{10 ** (-sum(map(model.score, lines)) / sum(len(line.split()) + 1 for line in lines)):.3f}")
"""


@dataclass(frozen=True)
class Side:
    """A command that does a work in a folder; `result` says what came out."""

    name: str
    command: Sequence[object]
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
    os.environ.update(ENVIRONMENT)
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
    peers = subprocess.check_output(
        [PEERS / "python", "-c", code, *names.split(), "meeteval", "faster-whisper", "espnet"], text=True
    ).strip()
    debian = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "sctk"], capture_output=True, text=True).stdout
    return f"{peers}, sctk {debian}"


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
        if not other.exists():
            run(ours("texts.py", "ngram", int(million_words * 1e6)), folder)
        words = ["--text", text, "--arpa", "ours.arpa", "--order", order]
        theirs = [PEERS / "lmplz", "-o", order, "-S", "1G", "-T", folder, "--text", text, "--arpa", "theirs.arpa"]

        def perplexity(arpa: str) -> Callable[[Run], str]:
            command = [PEERS / "python", "-c", PERPLEXITY, arpa, other]
            return lambda _: f"perplexity {run(command, folder).text.strip()}"

        yield Work(
            f"n-gram, order {order}, {million_words:g} M words",
            [
                Side("asrtool lm", asrtool("lm", *words), perplexity("ours.arpa"), "ours.arpa"),
                Side("lmplz -S 1G", theirs, perplexity("theirs.arpa"), "theirs.arpa"),
            ],
        )

    return works


def beam(demo: Path, folder: Path, _: float) -> Iterator[Work]:
    """Search by CTC prefix beam; flashlight-text knows no word outside the lexicon."""
    if not (folder / "texts.json").exists():
        run(ours("beam.py", "posteriors", demo, folder), folder)
    for size in (16, 64):
        sides = [Side("asrtool, method beam", ours("beam.py", "asrtool", demo, folder, size))]
        sides += [Side(name, peer("beam.py", name, demo, folder, size)) for name in ("flashlight", "pyctcdecode")]
        yield Work(f"prefix beam of {size}, dev of the demo (234 s)", sides)


def features(demo: Path, folder: Path, _: float) -> Iterator[Work]:
    """Compute filterbanks of all sets of the demo, 1.16 hours, by one process."""
    out, manifests = folder / "out", write_audio(demo, folder) / "manifests"

    def frames(_: Run) -> str:
        indexes = out.glob("*/index.jsonl")
        return f"{sum(json.loads(line)['num_frames'] for each in indexes for line in each.open()):,} frames"

    sides = [Side("asrtool features", asrtool("features", manifests, out, *options_of(FEATURES)), frames, "out")]
    for name in ("kaldi-native-fbank", "lhotse"):
        sides.append(Side(name, peer("fbank.py", name, manifests, out), makes="out"))
    yield Work("filterbanks, 1.16 h of 8 kHz, to disk", sides)


def training(_: Path, folder: Path, __: float) -> Iterator[Work]:
    """Train BiLSTM with CTC on AN4, an epoch."""
    an4 = ROOT.parent / "shared" / "data" / "an4"
    if not an4.is_dir():
        print(f"AN4 is not in {an4}: no training", file=sys.stderr)
        return
    work = folder / "an4"
    if not (folder / "num_tokens").exists():
        words = ["--recipe", "an4", *options_of([f"paths.an4={an4}", *AN4_SETTINGS]), "--stop-stage", "tokenizer"]
        run(asrtool("run", *words, "--work", work), folder)
        run(ours("training.py", "batches", work / "features", work / "tokenizer", folder, *TRAINING), folder)
    formats = ["fp32"]
    if re.search("avx512_bf16|amx_bf16", Path("/proc/cpuinfo").read_text()):
        formats.append("bf16")
    for precision in formats:
        one = options_of(["train.num_epochs=1", f"train.precision={precision}", *TRAINING])
        command = asrtool("train", work / "features", work / "tokenizer", "train", *one)
        sides = [Side("asrtool train", command, lambda run: trained(run, folder / "train"), "train")]
        for name, title in (("bare", "bare torch loop"), ("speechbrain", "speechbrain")):
            command = peer("training.py", name, folder, precision)
            sides.append(Side(title, command, lambda run: speed(run, float(run.found()["frames"]))))
        yield Work(f"BiLSTM-CTC 3 x 256 on AN4, an epoch, {precision}", sides)


def trained(run: Run, out: Path) -> str:
    records = [json.loads(line) for line in (out / "learners" / "0.jsonl").read_text().splitlines()]
    return speed(run, sum(record["frames"] for record in records), records[0]["begin"])


def speed(run: Run, frames: float, first_step: float = 0.0) -> str:
    begin_s = (first_step or float(run.found()["first_step"])) - run.began
    return f"{frames / run.cpu_s:,.0f} frames a CPU second; first step after {begin_s:.1f} s"


def modules(work: str, title: str, *others: str, home: Path = PEERS) -> Callable[[Path, Path, float], Iterator[Work]]:
    def works(_: Path, __: Path, ___: float) -> Iterator[Work]:
        """Compute steps of a module, all in `home` if that is not PEERS."""
        if not home.is_dir():
            print(f"{home} is missing: no {work}", file=sys.stderr)
            return
        own = OURS if home == PEERS else home
        sides = [Side("asrtool", [own / "python", SCRIPTS / "modules.py", work, "asrtool"])]
        sides += [Side(name, [home / "python", SCRIPTS / "modules.py", work, name]) for name in others]
        yield Work(title, sides)

    return works


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
        run(peer("recognise.py", "noise", folder / "noise"), folder)
    longest = max(wav.glob("*.wav"), key=lambda path: path.stat().st_size)

    def words(_: Run) -> str:
        return f"{sum(len(path.read_text().split()) for path in (folder / 'out').glob('*.txt')):,} words"

    for title, audio in (
        ("a quarter of an hour in 401 files", wav),
        (f"a file of {longest.stat().st_size / 16000:.1f} s", longest),
    ):
        options = (audio, "--out", "out", "--jobs", 1, "--method", "greedy")
        sides = [
            Side("asrtool transcribe, ONNX", asrtool("transcribe", onnx, *options), words, "out"),
            Side("asrtool transcribe, torch", asrtool("transcribe", bundle, *options), words, "out"),
        ]
        sides.append(Side("sherpa-onnx, same network", peer("recognise.py", "sherpa-onnx", onnx, audio)))
        if audio is longest:
            whisper = peer("recognise.py", "faster-whisper", folder / "noise", audio)
            sides.append(Side("faster-whisper, random weights", whisper))
        yield Work(f"transcribe {title}", sides)


def score(_: Path, folder: Path, __: float) -> Iterator[Work]:
    """Score a pair of the size of Hub5'00, by time and as plain text."""
    glm = ROOT.parent / "shared" / "data" / "sctk" / "en20030506.glm"
    if not (folder / "h.ctm").exists():
        run(ours("texts.py", "pair"), folder)
    if glm.is_file():
        shutil.copyfile(glm, folder / "g.glm")
        files = shlex.split("--ref r.stm --hyp h.ctm --glm g.glm --out out")
        hubscr = shlex.split("hubscr.pl -V -l english -h hub5 -g g.glm -r r.stm h.ctm")
        raw, ours_of = folder / "h.ctm.filt.raw", folder / "out" / "score.json"
        sides = [
            Side("asrtool score hub5", asrtool("score", "hub5", *files), lambda _: our_counts(ours_of.read_text()))
        ]
        sides.append(Side("hubscr.pl", hubscr, lambda _: counts_of_sctk(raw.read_text())))
        yield Work("score Hub5, 42,989 words", sides)

    def average(_: Run) -> str:
        found = json.loads((folder / "average.json").read_text())
        return show_counts([found[key] for key in ("length", "substitutions", "deletions", "insertions")])

    wer = asrtool("score", "wer", "r.trn", "h.trn", "--json")
    sclite = shlex.split("sclite -r r.trn trn -h h.trn trn -i spu_id -o rsum stdout")
    jiwer = [PEERS / "jiwer", *shlex.split("-r r.txt -h h.txt -g")]
    outputs = "--average-out average.json --per-reco-out per.json"
    meeteval = [PEERS / "meeteval-wer", *shlex.split(f"wer -r r.seglst.json -h h.seglst.json {outputs}")]
    yield Work(
        "score plain text, 42,989 words",
        [
            Side("asrtool score wer", wer, lambda run: our_counts(run.text)),
            Side("sclite", sclite, lambda run: counts_of_sctk(run.text)),
            Side("jiwer", jiwer, lambda run: f"WER {float(run.text):.5f}"),
            Side("meeteval-wer", meeteval, average),
        ],
    )


def show_counts(counts: list[int]) -> str:
    return "{:,} words, {} sub, {} del, {} ins".format(*counts)


def our_counts(text: str) -> str:
    counts = json.loads(text)["overall"]
    return show_counts([counts[key] for key in ("words", "sub", "del", "ins")])


def counts_of_sctk(table: str) -> str:
    """Read the sums: segments, words, correct, substituted, deleted, inserted."""
    row = next(line for line in table.splitlines() if re.match(r"\W*Sum", line))
    _, words, _, *errors = [int(cell) for cell in row.replace("|", " ").split()[1:7]]
    return show_counts([words, *errors])


WORKS: dict[str, Callable[[Path, Path, float], Iterator[Work]]] = {
    "ngram-3": ngram(3),
    "ngram-4": ngram(4),
    "beam": beam,
    "features": features,
    "training": training,
    "blocks": modules("blocks", "4 conformer blocks, a step of 4 x 250 rows", "torchaudio", "speechbrain", "espnet"),
    "conformer": modules("conformer", "the same with subsampling, 4 x 10 s", "speechbrain", "espnet"),
    "transducer": modules("transducer", "transducer loss, 4 x 250 x 61 x 500", "k2", "k2-pruned", home=K2),
    "attention": modules("attention", "attention decoder, 4 x 61 tokens", "speechbrain", "espnet"),
    "transcribe": transcribe,
    "score": score,
}

if __name__ == "__main__":
    main()
