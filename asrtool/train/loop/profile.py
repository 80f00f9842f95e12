"""Profile some steps of a learner by torch's profiler."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity

from asrtool.files import write_beside, write_text

SKIPPED, WARM_UP, NUM_STEPS = 5, 2, 10  # the first steps allocate memory and choose kernels
NUM_ROWS = 40  # rows of the table


@contextlib.contextmanager
def profiling(folder: Path, rank: int) -> Iterator[Callable[[], None]]:
    """Yield a function to call after each step; write up to ten steps to `folder`.

    `learner-R.json` is read by Perfetto and chrome://tracing; `learner-R.txt` lists the longest operations. A shorter
    training has neither, and logs it.
    """
    has_gpu = torch.cuda.is_available()
    written: list[Path] = []

    def write(profile: torch.profiler.profile) -> None:
        num_steps = profile.step_num - SKIPPED - WARM_UP  # fewer if the training ends before
        if not num_steps:
            return
        with write_beside(folder / f"learner-{rank}.json") as path:
            profile.export_chrome_trace(str(path))
        order = "self_cuda_time_total" if has_gpu else "self_cpu_time_total"
        written.append(folder / f"learner-{rank}.txt")
        write_text(written[0], profile.key_averages().table(sort_by=order, row_limit=NUM_ROWS) + "\n")
        logging.info("%s: time by operation of %d steps", written[0], num_steps)

    with torch.profiler.profile(
        activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if has_gpu else [])],
        schedule=torch.profiler.schedule(wait=SKIPPED, warmup=WARM_UP, active=NUM_STEPS, repeat=1),
        on_trace_ready=write,
    ) as profile:
        yield profile.step
    if not written:
        logging.warning("--profile: there were fewer than %d steps, so nothing is written", SKIPPED + WARM_UP + 1)
