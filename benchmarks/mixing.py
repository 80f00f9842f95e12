"""Milliseconds that mixing the weights takes a learner, by how many of them are worked on at a time.

    .venv/bin/python benchmarks/mixing.py

What a learner on a ring does once a step with its gossip view: ask, answer another, pull, and update. One process, one
thread. Sizes of pieces take turns, and other memory is read between, as a step in training would. Medians.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from asrtool.distributed.transport import view

NUM_PARAMETERS = (500_000, 5_000_000, 43_000_000)
PIECES = (2**15, 2**16, 2**17, 2**18, 2**19, 2**30)  # the last is all at once
MESSAGES = {"fp32": torch.float32, "bf16": torch.bfloat16}
SECONDS = 4.0  # of a table's row, about

Call = Callable[[], object]


def main() -> None:
    torch.set_num_threads(1)
    print("| parameters | messages |", " | ".join(f"{piece:,}" for piece in PIECES), "|")
    print("|---" * (2 + len(PIECES)) + "|")
    for num_parameters in NUM_PARAMETERS:
        for name, message_type in MESSAGES.items():
            print_row(num_parameters, name, step_of(num_parameters, message_type))


def step_of(num_parameters: int, message_type: torch.dtype) -> Call:
    own = view.View(torch.randn(num_parameters), message_type)
    asked_P, other_P = (torch.randn(num_parameters).to(message_type) for _ in range(2))

    def step() -> None:
        own.ask(asked_P)
        own.answer(other_P, 0, 0)  # weight 0: with others, values would shrink until they are subnormal, which is slow
        own.pull(other_P)
        own.update()

    return step


def print_row(num_parameters: int, messages: str, function: Call) -> None:
    other = torch.randn(8_000_000)
    taken: dict[int, list[float]] = {piece: [] for piece in PIECES}
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(taken[PIECES[0]]) < 5:
        for piece in PIECES:
            view.CHUNK = piece
            other.add_(1)
            begin = time.perf_counter()
            function()
            taken[piece].append(time.perf_counter() - begin)
    cells = [f"{1000 * statistics.median(seconds):.2f}" for seconds in taken.values()]
    print(f"| {num_parameters / 1e6:g} M | {messages} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
