"""Apply each patch to a copy of the tree and run the tests named for it: exit code 1 if any patch survives them.

make mutants
python tests/mutants/run.py --only ring-frozen-at-step-0 --jobs 1

The tests are run without any patch first: what fails by itself notices nothing.
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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from patches import PATCHES, Patch

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 300
PASSED, FAILED = 0, 1  # exit codes of pytest; others say that it did not come to a result
ENDLESS = 256  # in place of one, after TIMEOUT_S
OUTCOMES = {PASSED: "survives", FAILED: "noticed", ENDLESS: f"noticed, by a test that does not end in {TIMEOUT_S} s"}
NO_NETWORK = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")


def main() -> int:
    parser = argparse.ArgumentParser(description="Which of the patches of tests/mutants/patches no test notices.")
    parser.add_argument("--only", metavar="NAME", action="append", help="this patch alone; may be repeated")
    parser.add_argument("--jobs", type=int, default=2, help="patches tried at a time (default: 2)")
    options = parser.parse_args()
    if unknown := set(options.only or ()) - {patch.name for patch in PATCHES}:
        parser.error(f"no patch {', '.join(sorted(unknown))} in tests/mutants/patches")
    chosen = [patch for patch in PATCHES if not options.only or patch.name in options.only]
    try:
        for patch in chosen:
            patch.apply((ROOT / patch.file).read_text(encoding="utf-8"))
    except ValueError as error:
        parser.error(str(error))
    with contextlib.ExitStack() as stack:
        copies: SimpleQueue[Path] = SimpleQueue()
        for _ in range(options.jobs):
            copies.put(stack.enter_context(copied_tree()))
        return report(try_all(chosen, copies, options.jobs))


def try_all(patches: Sequence[Patch], copies: SimpleQueue[Path], num_jobs: int) -> dict[str, str]:
    """What became of each patch, by name."""
    with ThreadPoolExecutor(num_jobs) as pool:
        named = sorted({test for patch in patches for test in patch.tests})
        alone = dict(zip(named, pool.map(lambda test: run_tests((test,), copies), named), strict=True))
        broken = {test for test, code in alone.items() if code != PASSED}

        def attempt(patch: Patch) -> str:
            if unfit := sorted(broken.intersection(patch.tests)):
                return f"without it {', '.join(unfit)} cannot be run or does not pass"
            code = run_tests(patch.tests, copies, patch)
            return OUTCOMES.get(code, f"pytest ends with {code}")

        def attempt_and_print(patch: Patch) -> str:
            outcome = attempt(patch)
            print(f"{patch.name}: {outcome}", flush=True)  # as soon as it is known: all of them take half an hour
            return outcome

        return dict(zip((patch.name for patch in patches), pool.map(attempt_and_print, patches), strict=True))


def run_tests(tests: Sequence[str], copies: SimpleQueue[Path], patch: Patch | None = None) -> int:
    """The exit code of pytest in a copy of the tree with `patch`; ENDLESS after TIMEOUT_S."""
    root = copies.get()
    try:
        with applied(root, patch) if patch else contextlib.nullcontext():
            return pytest(root, tests)
    finally:
        copies.put(root)


def pytest(root: Path, tests: Sequence[str]) -> int:
    """Run `tests` in the tree `root`."""
    # Stale compiled files are recognised by time and length, which a patch may leave as they were.
    environment = {**os.environ, **NO_NETWORK, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    process = subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        return process.wait(TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return ENDLESS
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # learners that tests left behind as well
        process.wait()


@contextlib.contextmanager
def applied(root: Path, patch: Patch) -> Iterator[None]:
    """Inside, the tree `root` has the patch."""
    path = root / patch.file
    before = path.read_text(encoding="utf-8")
    path.write_text(patch.apply(before), encoding="utf-8")
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


def report(found: dict[str, str]) -> int:
    """Print which patches were not noticed, and how many were; 1 where any was not."""
    for name in sorted(found):
        if not found[name].startswith("noticed"):
            print(f"not noticed: {name}")
    num_noticed = sum(outcome.startswith("noticed") for outcome in found.values())
    print(f"{num_noticed} of {len(found)} noticed")
    return int(num_noticed < len(found))


if __name__ == "__main__":
    sys.exit(main())
