"""Processes of a test that need not import torch: they are forked from one that has."""

from __future__ import annotations

import functools
import multiprocessing
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any, BinaryIO

PRELOADED = "warm_modules"


@functools.cache
def warm_context() -> ForkServerContext:
    """Return a context whose processes are forked from one with `PRELOADED`, if it starts the server first."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([PRELOADED])
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (path, str(Path(__file__).parent))))
    try:
        forkserver.ensure_running()  # whose modules are not found by the sys.path of this process
    finally:
        os.environ.pop("PYTHONPATH") if path is None else os.environ.update(PYTHONPATH=path)
    return context


def run_apart(function: Callable[..., Any], *args: Any) -> Any:
    """Return the result of `function` of a module in a new process of one thread, which may fork."""
    with ProcessPoolExecutor(1, warm_context()) as pool:
        return pool.submit(function, *args).result()


def run_script(
    text: str, timeout: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a script like `subprocess.run` of a Python, but forked, without a teardown of the interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("stdout", "stderr")]
        process = start_script(text, files, environment)
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(text, timeout)
        return subprocess.CompletedProcess(text, process.exitcode, *(file.read_text() for file in files))


def start_script(text: str, files: Sequence[Path], environment: Mapping[str, str] | None = None) -> ForkServerProcess:
    """A process that runs it, and writes its output and errors to two `files`."""
    process = warm_context().Process(target=_run_script, args=(text, files, environment or dict(os.environ)))
    process.start()
    return process


def _run_script(text: str, files: Sequence[Path], environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    for stream, file in zip((sys.stdout, sys.stderr), files, strict=True):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), stream.fileno())
    code = 0
    try:
        exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        print(end.code, file=sys.stderr) if isinstance(end.code, str) else None
    except BaseException:
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def run_asrtool(words: Sequence[str], folder: Path, stdin: Path | None = None, afresh: bool = False) -> str:
    """Return the output of the command in `folder`, also on sys.path; AssertionError if it fails.

    Stages of a recipe are forked, too, `afresh` without our modules, so that what one does not import is missing.
    That the engine starts them as processes of their own is left to other tests.
    """
    code, output = run_apart(_run_in, words, folder, stdin, afresh)
    assert code == 0, output[-3000:]
    return str(output)


def _run_in(words: Sequence[str], folder: Path, stdin: Path | None, afresh: bool) -> tuple[int, str]:
    from lhotse.recipes import commonvoice

    from asrtool.recipe import engine

    # In place of processes of this preparer, each of which imports all of lhotse anew.
    commonvoice.ProcessPoolExecutor = lambda max_workers, **_: ThreadPoolExecutor(max_workers)
    multiprocessing.set_start_method(None, force=True)  # what a command starts is started as ever, not by that server
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    engine.run_logged = run_forked_afresh if afresh else run_forked
    if stdin:
        os.dup2(os.open(stdin, os.O_RDONLY), 0)
        sys.stdin = os.fdopen(0)
    with tempfile.TemporaryFile() as output:
        code = run_forked(words, output)
        output.seek(0)
        return code, output.read().decode()


def run_forked(words: Sequence[str], log: BinaryIO) -> int:
    """Run as `asrtool.recipe.process.run_logged`, with the output only in the log."""
    child = os.fork()
    if child == 0:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(log.fileno(), stream.fileno())
        os._exit(run_here(words))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_forked_afresh(words: Sequence[str], log: BinaryIO) -> int:
    """Run without any module of ours, as in a new Python; those of other packages stay."""
    from asrtool.recipe import source

    ours = {name: module for name, module in sys.modules.items() if name.split(".")[0] in source.PACKAGES}
    for name in ours:
        del sys.modules[name]
    try:
        return run_forked(words, log)
    finally:
        sys.modules.update(ours)


def run_here(words: Sequence[str]) -> int:
    """The exit status of `asrtool` with `words`, which runs in this process."""
    from asrtool.cli.main import main

    sys.argv = ["asrtool", *words]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    return 1
