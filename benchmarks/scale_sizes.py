"""How large the inputs of the further rows of benchmarks/scale.py are at full size."""

from __future__ import annotations

from pathlib import Path

SHORTENED = Path(__file__).resolve().parents[2] / "shared" / "data" / "sph" / "123_2ulaw_shn.sph"  # 3 s, two channels
NUM_SHORTENED = 100  # files
NUM_CALLS, NUM_CUT = 10, 2  # calls of noise: of features, and of pieces
NUM_OWN = 80_000  # files, a hundred hours
SETS = {"dev": 5_500, "hub5": 4_459, "rt03": 8_422}  # segments: 300 minutes of dev, Hub5'00, RT-03
NUM_STEPS, NUM_LEARNERS = 40_000, 8  # of the training that a report is of
INDEX_UTTERANCES = 7_000_000  # all speeds together
