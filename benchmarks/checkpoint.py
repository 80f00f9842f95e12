"""What a checkpoint of 43 million parameters with AdamW (516 MB) costs the training, by who writes it.

    python benchmarks/checkpoint.py [--rounds 3] [--folder FOLDER]

`write_torch` in the training loop or in a thread of its own (also as it was when it made the file in memory), and
`async_save` of torch.distributed.checkpoint (DCP) in a thread or a process. All but the first copy the state into
buffers that they allocate once. The training thread makes steps of a small model; the saved state lies beside it. Each
contestant has a process of its own, in turns; printed are medians. Time in which the training thread had no core is
left out: other processes may run beside. Then some are killed in the middle of writing, and finished checkpoints of a
small state are damaged.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import itertools
import json
import logging
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, AsyncSaveResponse, async_save
from train_step import step

from asrtool.errors import AsrtoolError
from asrtool.files import write_beside
from asrtool.models.acoustic import build_model
from asrtool.models.files.file_info import DIGEST_BYTES
from asrtool.models.files.torch_file import read_torch, write_torch
from asrtool.models.precision import Precision
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice

State = dict[str, dict[str, Tensor]]
Save = Callable[[Path], "Future[Any]"]  # returns when the state may change again; the future ends with the file

NUM_SAVES, NUM_ALONE = 3, 6  # of one process; steps before each save that say how long one takes
NUM_DAMAGES = 40
SIZES: list[tuple[int, ...]] = [*10 * [(2048, 2048)], (1024, 1024), *30 * [(512,)]]  # parameters: 43.0 million
KEYS = ("weights", "exp_avg", "exp_avg_sq")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="on the disk to measure")
    parser.add_argument("--child", nargs=2, metavar=("JOB", "NAME"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    quieten()
    if arguments.child:
        job, name = arguments.child
        {"measure": measure, "write": write_one}[job](name, arguments.folder)
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        compare(Path(folder), arguments.rounds)
        for name in ("write_torch, thread", "DCP, thread", "DCP, process"):
            kill_in_the_middle(name, Path(folder, "killed"))
        for name in ("write_torch, thread", "DCP, thread"):
            damage(name, Path(folder, "damaged"))


def quieten() -> None:
    """DCP warns at each save that there is no process group, which is meant."""
    warnings.filterwarnings("ignore", module="torch.distributed")
    logging.disable(logging.WARNING)


# Contestants


def write_in_loop(state: State) -> Save:
    def save(path: Path) -> Future[Any]:
        write_torch(path, state)
        done: Future[Any] = Future()
        done.set_result(None)
        return done

    return save


def write_in_thread(state: State) -> Save:
    return write_frozen(state, write_torch)


def make_in_memory(state: State) -> Save:
    return write_frozen(state, write_by_memory)


def write_frozen(state: State, write: Callable[[Path, State], None]) -> Save:
    frozen = {key: {name: torch.empty_like(tensor) for name, tensor in part.items()} for key, part in state.items()}
    writer = ThreadPoolExecutor(1)

    def save(path: Path) -> Future[Any]:
        for key, part in state.items():
            for name, tensor in part.items():
                frozen[key][name].copy_(tensor)
        return writer.submit(write, path, frozen)

    return save


def write_by_memory(path: Path, state: State) -> None:
    """As `write_torch` was before it streamed: the same bytes."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with buffer.getbuffer() as data, write_beside(path) as temporary, open(temporary, "wb") as file:
        data[-2:] = DIGEST_BYTES.to_bytes(2, "little")
        file.write(data)
        file.write(hashlib.sha256(data).digest())
        file.flush()
        os.fsync(file.fileno())


def dcp_in_thread(state: State) -> Save:
    return dcp_save(state, AsyncCheckpointerType.THREAD)


def dcp_in_process(state: State) -> Save:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    dist.init_process_group("gloo", rank=0, world_size=1)
    return dcp_save(state, AsyncCheckpointerType.PROCESS)


def dcp_save(state: State, kind: AsyncCheckpointerType) -> Save:
    in_process = kind is AsyncCheckpointerType.PROCESS
    # what else it can do takes an accelerator
    options = StagingOptions(False, use_shared_memory=in_process, use_async_staging=False, use_non_blocking_copy=False)
    stager = DefaultStager(options)

    def save(path: Path) -> Future[Any]:
        saved = async_save(
            state,
            storage_writer=FileSystemWriter(path),
            async_stager=stager,
            async_checkpointer_type=kind,
            no_dist=not in_process,
        )
        return saved.upload_completion if isinstance(saved, AsyncSaveResponse) else saved

    return save


CONTESTANTS: dict[str, Callable[[State], Save]] = {
    "write_torch, in the loop": write_in_loop,
    "write_torch, thread": write_in_thread,
    "as it was, thread": make_in_memory,
    "DCP, thread": dcp_in_thread,
    "DCP, process": dcp_in_process,
}


# Time


def compare(folder: Path, rounds: int) -> None:
    """Print the medians of all saves of each contestant."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CONTESTANTS}
    for _ in range(rounds):
        for name in CONTESTANTS:
            with tempfile.TemporaryDirectory(dir=folder) as own:
                command = [sys.executable, __file__, "--folder", own, "--child", "measure", name]
                found[name] += json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            os.sync()
    for name, saves in found.items():
        figures = {key: statistics.median(save[key] for save in saves) for key in saves[0]}
        print(f"{name}: " + ", ".join(f"{key} {figure:.3f}" for key, figure in figures.items()), flush=True)


def measure(name: str, folder: Path) -> None:
    """Print the figures of NUM_SAVES saves; one before them makes the buffers."""
    torch.set_num_threads(1)
    state, train = make_state(SIZES), make_step()
    median_seconds(train)
    before_bytes = resident_bytes("VmRSS")
    save = CONTESTANTS[name](state)
    save(folder / "warm-up.pt").result()
    figures = []
    for number in range(NUM_SAVES):
        path = folder / f"{name}-{number}.pt"
        figures.append(measure_save(save, path, train, median_seconds(train)))
        figures[-1]["MB on disk"] = sum(file.stat().st_size for file in files_of(path)) / 1e6
        figures[-1]["files"] = len(files_of(path))
        of_children = sum(resident_bytes("RssAnon", child.pid or "") for child in active_children())
        figures[-1]["MiB more"] = (resident_bytes("VmHWM") - before_bytes + of_children) / 2**20
    print(json.dumps(figures))


def measure_save(save: Save, path: Path, train: Callable[[], None], alone_s: float) -> dict[str, float]:
    """What one save takes from the training thread, which makes steps of `alone_s` meanwhile."""
    start_s, start_own_s, start_ran_s, start_cpu_s = time.perf_counter(), own_seconds(), ran_seconds(), cpu_seconds()
    saved = save(path)
    call_s = own_seconds() - start_own_s
    num_steps = 0
    while not saved.done():
        train()
        num_steps += 1
    saved.result()
    own_s, ran_s = own_seconds() - start_own_s, ran_seconds() - start_ran_s
    return {
        "s in the call": call_s,
        "s lost": own_s - num_steps * alone_s,
        "s waiting": own_s - ran_s,
        "CPU s of others": cpu_seconds() - start_cpu_s - ran_s,
        "s to the file": time.perf_counter() - start_s,
        "s a step": alone_s,
    }


def own_seconds() -> float:
    """The clock, without the time in which this thread had no core: that is what other processes take."""
    return time.perf_counter() - schedule()[1]


def ran_seconds() -> float:
    return schedule()[0]


def schedule() -> tuple[float, float]:
    """Seconds that this thread ran, and that it could have run and had no core."""
    ran_ns, queued_ns, _ = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text().split()
    return int(ran_ns) / 1e9, int(queued_ns) / 1e9


def cpu_seconds() -> float:
    """Of this process and its children that live."""
    stats = [Path(f"/proc/{child.pid}/stat").read_text().rsplit(")")[-1].split() for child in active_children()]
    return time.process_time() + sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")


def make_state(sizes: Sequence[tuple[int, ...]]) -> State:
    return {key: {f"layer-{number}": torch.randn(size) for number, size in enumerate(sizes)} for key in KEYS}


def make_step() -> Callable[[], None]:
    model = build_model(Model(Choice.of("encoder", "lstm", num_layers=3, hidden_size=96)), 40, 60)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    precision = Precision(torch.device("cpu"), "fp32")
    return lambda: step(model, optimizer, precision)


def median_seconds(train: Callable[[], None]) -> float:
    """Of a step, while nothing is saved."""
    ends_s = [own_seconds()]
    for _ in range(NUM_ALONE):
        train()
        ends_s.append(own_seconds())
    return statistics.median(end_s - start_s for start_s, end_s in itertools.pairwise(ends_s))


def resident_bytes(key: str, process: int | str = "self") -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(key)))


# Files


def write_one(name: str, folder: Path) -> None:
    CONTESTANTS[name](make_state(SIZES))(folder / "a.pt").result()


def kill_in_the_middle(name: str, folder: Path) -> None:
    """Kill a process -9 that has written half of a checkpoint, and print what is left and how it is read."""
    folder.mkdir()
    command = [sys.executable, __file__, "--folder", str(folder), "--child", "write", name]
    with subprocess.Popen(command, start_new_session=True) as process:
        while sum(file.stat().st_size for file in files_of(folder)) < 250e6:
            time.sleep(0.001)
        os.killpg(process.pid, signal.SIGKILL)
    left = [f"{file.relative_to(folder)} of {file.stat().st_size / 1e6:.0f} MB" for file in files_of(folder)]
    found = outcome(name, folder / "a.pt", make_state(SIZES))
    print(f"{name}, killed: left {', '.join(left)}; reading a.pt: {found}", flush=True)
    shutil.rmtree(folder)


def damage(name: str, folder: Path) -> None:
    """Change one byte of a checkpoint, or cut its largest file; print how often reading notices."""
    folder.mkdir()
    torch.manual_seed(1)
    state, path = make_state(8 * [(100, 100)]), folder / "a.pt"
    CONTESTANTS[name](state)(path).result()
    file = max(files_of(path), key=lambda file: file.stat().st_size)
    whole, rng = file.read_bytes(), random.Random(1)
    for kind in ("a byte changed", "cut"):
        outcomes = []
        for _ in range(NUM_DAMAGES):
            place = rng.randrange(len(whole))
            changed = whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :]
            file.write_bytes(changed if kind == "a byte changed" else whole[:place])
            outcomes.append(outcome(name, path, state).split(":")[0])
        counts = {found: outcomes.count(found) for found in sorted(set(outcomes))}
        print(f"{name}, {kind}: {counts}", flush=True)
    shutil.rmtree(folder)


def outcome(name: str, path: Path, expected: State) -> str:
    """What reading a checkpoint ends in."""
    try:
        if name.startswith("DCP"):
            found = {key: {name: torch.zeros_like(tensor) for name, tensor in expected[key].items()} for key in KEYS}
            load(found, checkpoint_id=path, no_dist=True)
        else:
            found = read_torch(path, "checkpoint", KEYS)
    except (AsrtoolError, CheckpointException) as error:
        return f"error: {str(error).splitlines()[-1][:120]}"
    except Exception as error:
        return f"traceback: {type(error).__name__}"
    same = all(torch.equal(found[key][name], tensor) for key in KEYS for name, tensor in expected[key].items())
    return "as it was" if same else "other values"


def files_of(path: Path) -> list[Path]:
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]


if __name__ == "__main__":
    main()
