"""How benchmarks/convergence.py reads what is finished, and chooses rates."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
import convergence


def trained(seed: int, rate: float, *losses: float) -> dict[str, Any]:
    return {"seed": seed, "rate": rate, "losses": list(losses), "epochs": 2}


def test_a_line_that_a_kill_cut_off_is_trained_again(tmp_path: Path) -> None:
    lines = [json.dumps(trained(1, 0.1, 3.0, 2.0)), json.dumps(trained(1, 0.2, 3.0, 2.5))]
    file = tmp_path / "results.jsonl"
    assert convergence.read(file) == []
    file.write_text(lines[0] + "\n" + lines[1][:20], encoding="utf-8")
    convergence.write(file, trained(2, 0.2, 1.0, 1.0))
    assert convergence.read(file) == [trained(1, 0.1, 3.0, 2.0), trained(2, 0.2, 1.0, 1.0)]


def test_the_best_rate_has_the_lowest_mean_of_those_with_most_seeds() -> None:
    cell = [trained(1, 0.1, 9.0, 2.0), trained(2, 0.1, 9.0, 4.0), trained(1, 0.2, 9.0, 1.0), trained(1, 0.4, 9.0, 2.0)]
    cell += [trained(2, 0.4, 9.0, 2.0)]
    best = convergence.best_of(cell)
    assert (best.loss, best.rate, set(best.losses), best.num_rates) == (2.0, 0.4, {1, 2}, 2)
    diverged = convergence.best_of([trained(1, 0.1, 5.0), trained(1, 0.2, 9.0, 3.0)])  # one ended after an epoch
    assert (diverged.loss, diverged.rate) == (3.0, 0.2)


def test_a_cell_is_compared_with_one_learner_of_its_seeds() -> None:
    alone = [trained(1, 0.1, 9.0, 2.0), trained(2, 0.1, 9.0, 4.0)]
    assert convergence.is_close(convergence.best_of([trained(1, 0.3, 9.0, 2.09)]), alone)
    assert not convergence.is_close(convergence.best_of([trained(1, 0.3, 9.0, 2.11)]), alone)
    assert not convergence.is_close(convergence.best_of([trained(3, 0.3, 9.0, 1.0)]), alone)
