"""Learners that share the cores of a machine: how much longer the part of a step takes that needs one."""

from __future__ import annotations

import numpy as np


def shared_cpu_s(cpu_s: float, other_s: float, num_learners: int, num_cores: int, together: bool) -> float:
    """Of `cpu_s` of a core in each step, beside `other_s` that need none, by so many learners.

    Learners that begin their steps `together` want cores at the same time, and share them. Others come at any time: a
    closed queue with `num_cores` servers, solved as the machine repairman's (exponential times; e.g. Gross and Harris,
    Fundamentals of Queueing Theory).
    """
    if num_learners <= num_cores or not cpu_s:
        return cpu_s
    if together or not other_s:
        return cpu_s * num_learners / num_cores
    waiting = np.arange(num_learners + 1)
    arrivals, services = (num_learners - waiting[:-1]) / other_s, np.minimum(waiting[1:], num_cores) / cpu_s
    weights = np.concatenate([[1.0], np.cumprod(arrivals / services)])
    weights /= weights.sum()
    throughput = float(weights[:-1] @ arrivals)
    return float(weights @ waiting) / throughput
