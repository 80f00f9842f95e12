"""How soon those left train again, with their optimizer, when a machine is lost under torchrun --nnodes 1:2.

    .venv/bin/python benchmarks/lost_machine.py FEATURES TOKENIZER WORK [--strategy NAME] [--rdzv-conf KEY=VALUE,...]
                                                [--num-learners N] [--config FILE ...] [--set KEY=VALUE ...]

Two agents of torchrun on this machine stand for two machines. The second one and its learners get SIGKILL once a
checkpoint has all learners. Prints the seconds from that until the learners of the first one have ended their first
step, and how they resumed. Ends with code 1 where that takes longer than LIMIT_S. Without --rdzv-conf torch's defaults
hold. The log of the first agent is WORK/first.log.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from restarts import ASRTOOL, TORCHRUN, kill, learners_of

from asrtool.errors import AsrtoolError
from asrtool.train.checkpoints.checkpoint import load_checkpoint

RESTARTED = ("allreduce", "adpsgd-d1", "bmuf", "ps-sync")  # others survive, or have no lock-step
LIMIT_S = 30.0
HANGS_S = 300.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("features", "tokenizer", "work"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--strategy", default="allreduce", choices=RESTARTED)
    parser.add_argument("--rdzv-conf", default="", metavar="KEY=VALUE,...")
    parser.add_argument("--num-learners", type=int, default=1, help="of each agent")
    parser.add_argument("--compute-ms", type=float, default=100)
    parser.add_argument("--config", dest="configs", action="append", type=Path, default=[], metavar="FILE")
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    with agents(options) as (first, second):
        seconds = lose(first, second, options)
    (how,) = [line for line in log_of(options.work, "first").splitlines() if "learners instead of" in line][-1:]
    print(f"{options.rdzv_conf or 'the defaults of torch'}: {seconds:.1f} s; {how.partition('INFO ')[2]}")
    sys.exit(seconds > LIMIT_S)


@contextlib.contextmanager
def agents(options: argparse.Namespace) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two of them, the first of which has the store; both are killed at the end, with their learners."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with contextlib.ExitStack() as stack:
        started = []
        for name in ("first", "second"):
            log = stack.enter_context(open(options.work / f"{name}.log", "wb"))
            started.append(subprocess.Popen(command(port, options), stdout=log, stderr=log))
            time.sleep(1)  # the first one takes the port
        try:
            yield started
        finally:
            for agent in started:
                kill_machine(agent, options.work / "train")


def command(port: int, options: argparse.Namespace) -> list[str]:
    launch = [TORCHRUN, "--nnodes", "1:2", "--nproc-per-node", options.num_learners, "--max-restarts", 10]
    launch += ["--rdzv-backend", "c10d", "--rdzv-id", "lost-machine", "--rdzv-endpoint", f"localhost:{port}"]
    launch += ["--local-addr", "127.0.0.1", *(("--rdzv-conf", options.rdzv_conf) if options.rdzv_conf else ())]
    train = [ASRTOOL, "train", options.features, options.tokenizer, options.work / "train"]
    train += ["--strategy", options.strategy, "--compute-ms", options.compute_ms]
    configs = [word for path in options.configs for word in ("--config", path)]
    sets = [word for text in options.sets for word in ("--set", text)]
    return [str(word) for word in (*launch, "--no-python", *train, *configs, *sets)]


def lose(first: subprocess.Popen[bytes], second: subprocess.Popen[bytes], options: argparse.Namespace) -> float:
    """Kill the second machine; the seconds until a learner of the first one has ended a step again."""
    out, log = options.work / "train", options.work
    wait_until(lambda: first.poll() is not None or has_all(out, 2 * options.num_learners), log)
    before = set(learners_of(out).values())
    begin = time.time()
    kill_machine(second, out)
    wait_until(lambda: first.poll() is not None or bool(set(learners_of(out).values()) - before), log)
    restarted = time.time()
    wait_until(lambda: first.poll() is not None or last_step(out) > restarted, log)
    return time.time() - begin


def has_all(out: Path, num: int) -> bool:
    """Whether a checkpoint has so many learners; the first ones may have begun alone."""
    for path in (out / "checkpoints").glob("step-????????.pt"):
        with contextlib.suppress(AsrtoolError, FileNotFoundError):  # one may be removed meanwhile
            if load_checkpoint(path)[1].num_learners == num:
                return True
    return False


def last_step(out: Path) -> float:
    """When learner 0 began the last step that it has recorded."""
    with contextlib.suppress(OSError):
        lines = (out / "learners" / "0.jsonl").read_bytes().rpartition(b"\n")[0].splitlines()
        return float(json.loads(lines[-1])["begin"]) if lines else 0.0
    return 0.0


def kill_machine(agent: subprocess.Popen[bytes], out: Path) -> None:
    """The agent, and what it has started."""
    mine = [process for process in learners_of(out).values() if parent_of(process) == agent.pid]
    for process in (*mine, agent.pid):
        kill(process)
    agent.wait()


def parent_of(process: int) -> int:
    """0 where there is none any more."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()[1])
    return 0


def wait_until(done: Callable[[], bool], logs: Path) -> None:
    until = time.monotonic() + HANGS_S
    while not done():
        if time.monotonic() > until:
            sys.exit(f"nothing for {HANGS_S:g} s\n{log_of(logs, 'first')}\n{log_of(logs, 'second')}")
        time.sleep(0.01)


def log_of(work: Path, name: str) -> str:
    return (work / f"{name}.log").read_text(encoding="utf-8", errors="replace")


if __name__ == "__main__":
    main()
