"""Tests of what k2 does, against kaldifst, kaldi-decoder and torch; skipped where k2 is absent."""

from __future__ import annotations

import pytest

pytest.importorskip("k2", reason="k2 is not installed; `make test-k2` makes an environment that has it")
