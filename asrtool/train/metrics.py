"""What a training tells while it runs: `metrics.jsonl`, TensorBoard, and a line of the log."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from asrtool.files import disk_full
from asrtool.train.examples import ExampleBatch


@dataclass
class Interval:
    """Sums since the last report; divided once, when reported."""

    num_steps: int = 0
    loss: float = 0.0  # nats
    normaliser: int = 0
    grad_norm: float = 0.0
    frames: int = 0
    padded_frames: int = 0
    wait_s: float = 0.0  # for data
    seconds: float = 0.0

    def add(self, batch: ExampleBatch, loss: float, grad_norm: float, seconds: float) -> None:
        """Count a batch that took `seconds`, with its loss in nats."""
        self.num_steps += 1
        self.loss += loss
        self.normaliser += batch.normaliser
        self.grad_norm += grad_norm
        self.frames += batch.frames
        self.padded_frames += batch.padded_frames
        self.wait_s += batch.wait_s
        self.seconds += seconds

    def rates(self) -> dict[str, float]:
        """Loss in nats a token, mean gradient norm, frames a second, fractions of padding and of waiting for data."""
        return {
            "loss": self.loss / max(self.normaliser, 1),
            "grad_norm": self.grad_norm / self.num_steps,
            "frames_per_s": self.frames / self.seconds,
            "padding_fraction": 1 - self.frames / self.padded_frames,
            "data_wait_fraction": self.wait_s / self.seconds,
        }


class Metrics:
    """`metrics.jsonl` and `tensorboard/` in `out`, continued from `num_bytes` and `step`: later lines are dropped."""

    def __init__(self, out: Path, num_bytes: int, step: int) -> None:
        self.path = out / "metrics.jsonl"
        self.path.touch()
        self._file = open(self.path, "r+b")  # noqa: SIM115
        self._file.truncate(min(num_bytes, self.path.stat().st_size))
        self._file.seek(0, io.SEEK_END)
        self._tensorboard = SummaryWriter(str(out / "tensorboard"), purge_step=step + 1)

    def __enter__(self) -> Metrics:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._file.close()
        self._tensorboard.close()

    def write(self, kind: str, step: int, values: dict[str, Any]) -> None:
        """One line, and one curve a value, named `kind`/value; AsrtoolError when the disk is full."""
        line = json.dumps({"kind": kind, "step": step, **values}) + "\n"
        try:
            self._file.write(line.encode())
            self._file.flush()
            for name, value in values.items():
                self._tensorboard.add_scalar(f"{kind}/{name}", value, step)
        except OSError as error:
            raise disk_full(self.path, error) from error

    @property
    def num_bytes(self) -> int:
        """How long metrics.jsonl is."""
        return self._file.tell()
