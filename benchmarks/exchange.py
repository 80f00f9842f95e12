"""CPU milliseconds of an exchange of gossip, both learners together, by how their messages travel.

    .venv/bin/python benchmarks/exchange.py

Two learners in one process, whose threads and whose ZeroMQ's threads all count; the ways take turns. Medians.
"""

from __future__ import annotations

import dataclasses
import statistics
import time

import torch

from asrtool.distributed.transport.exchange import Exchanger
from asrtool.distributed.transport.view import View

NUM_PARAMETERS = (2_300_000, 43_000_000)
NUM_EXCHANGES = 30
WAYS = ("memory", "Unix socket", "TCP")


def main() -> None:
    torch.set_num_threads(1)
    print("| parameters |", " | ".join(WAYS), "|")
    print("|---" * (1 + len(WAYS)) + "|")
    for num_parameters in NUM_PARAMETERS:
        pairs = [connected(num_parameters, way) for way in WAYS]
        taken = [[cpu_ms(asking) for asking, _ in pairs] for _ in range(NUM_EXCHANGES)][1:]  # the first one connects
        cells = [f"{statistics.median(of_way):.1f}" for of_way in zip(*taken, strict=True)]
        print(f"| {num_parameters / 1e6:g} M |", " | ".join(cells), "|", flush=True)
        for exchanger in (one for pair in pairs for one in pair):
            exchanger.close()


def connected(num_parameters: int, way: str) -> tuple[Exchanger, Exchanger]:
    asking, answering = (Exchanger(View(torch.randn(num_parameters), torch.float32), 1 / 3) for _ in range(2))
    machine = "another" if way == "TCP" else answering.address.machine
    asking.addresses = {1: dataclasses.replace(answering.address, machine=machine)}
    if way == "Unix socket":
        asking.blind.add(1)
    return asking, answering


def cpu_ms(asking: Exchanger) -> float:
    begin = time.process_time()
    asking.begin(1)
    asking.finish()
    return 1000 * (time.process_time() - begin)


if __name__ == "__main__":
    main()
