"""Apply each mutant to a copy of the tree and run the tests named for it: exit code 1 if any mutant survives.

make mutants
python tests/mutants/run.py --only ring-frozen-at-step-0 --jobs 1

All these tests are run without a mutant first: a test that fails by itself notices nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 300
PASSED, FAILED = 0, 1  # exit codes of pytest; others say that it did not come to a result
ENDLESS = 256  # in place of one, after TIMEOUT_S
OUTCOMES = {PASSED: "survives", FAILED: "noticed", ENDLESS: f"noticed, by a test that does not end in {TIMEOUT_S} s"}
NO_NETWORK = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")


def main() -> int:
    """Try the chosen mutants and print their outcomes."""
    parser = argparse.ArgumentParser(description="Which of the mutants of tests/mutants no test notices.")
    parser.add_argument("--only", metavar="NAME", action="append", help="this mutant alone; may be repeated")
    parser.add_argument("--jobs", type=int, default=2, help="mutants tried at a time (default: 2)")
    options = parser.parse_args()
    if unknown := set(options.only or ()) - {mutant.name for mutant in MUTANTS}:
        parser.error(f"no mutant {', '.join(sorted(unknown))} in tests/mutants")
    chosen = [mutant for mutant in MUTANTS if not options.only or mutant.name in options.only]
    try:
        for mutant in chosen:
            mutant.apply((ROOT / mutant.file).read_text(encoding="utf-8"))
    except ValueError as error:
        parser.error(str(error))
    with contextlib.ExitStack() as stack:
        copies: SimpleQueue[Path] = SimpleQueue()
        for _ in range(options.jobs):
            copies.put(stack.enter_context(copied_tree()))
        named = sorted({test for mutant in chosen for test in mutant.tests})
        num_processes = ("-n", str(options.jobs), "--dist", "loadfile")
        if pytest(copies, (*num_processes, *named), timeout_s=None, quiet=False) != PASSED:
            parser.error("tests fail without a mutant; fix these first")
        with ThreadPoolExecutor(options.jobs) as pool:
            noticed = list(pool.map(lambda mutant: is_noticed(mutant, copies), chosen))
    print(f"{sum(noticed)} of {len(noticed)} noticed")
    return int(not all(noticed))


def is_noticed(mutant: Mutant, copies: SimpleQueue[Path]) -> bool:
    """Return whether a test of `mutant` fails, and print the outcome."""
    code = pytest(copies, ("-x", *mutant.tests), mutant)
    print(f"{mutant.name}: {OUTCOMES.get(code, f'pytest ends with {code}')}", flush=True)
    return code in (FAILED, ENDLESS)


def pytest(
    copies: SimpleQueue[Path],
    words: Sequence[str],
    mutant: Mutant | None = None,
    timeout_s: float | None = TIMEOUT_S,
    quiet: bool = True,
) -> int:
    """Return the exit code of pytest in a copy of the tree with `mutant`; ENDLESS after `timeout_s`."""
    root = copies.get()
    # Stale compiled files are recognised by time and length, which a mutant may leave as they were.
    environment = {**os.environ, **NO_NETWORK, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    try:
        with applied(root, mutant) if mutant else contextlib.nullcontext():
            return run(command, root, environment, timeout_s, quiet)
    finally:
        copies.put(root)


def run(
    command: Sequence[str], root: Path, environment: Mapping[str, str], timeout_s: float | None, quiet: bool
) -> int:
    """Return the exit code of a command in `root`, all of whose processes end; ENDLESS after `timeout_s`."""
    output = subprocess.DEVNULL if quiet else None
    process = subprocess.Popen(command, cwd=root, env=environment, stdout=output, stderr=output, start_new_session=True)
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return ENDLESS
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # learners that tests left behind as well
        process.wait()


@contextlib.contextmanager
def applied(root: Path, mutant: Mutant) -> Iterator[None]:
    """Apply the mutant to the tree `root` inside the context."""
    path = root / mutant.file
    before = path.read_text(encoding="utf-8")
    path.write_text(mutant.apply(before), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(before, encoding="utf-8")


@contextlib.contextmanager
def copied_tree() -> Iterator[Path]:
    """Copy the tracked files."""
    answer = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    with tempfile.TemporaryDirectory(prefix="asrtool-mutants-") as name:
        for file in answer.stdout.splitlines():
            if (ROOT / file).is_file() or (ROOT / file).is_symlink():  # links to folders, too
                (Path(name) / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, Path(name) / file, follow_symlinks=False)
        yield Path(name)


if __name__ == "__main__":
    sys.exit(main())
