"""Settings of earlier versions.

A file or `--set` that gives a removed setting the value that is left is read with a warning; another value is
an error. Model files that hold one are read without a line.
"""

from __future__ import annotations

from typing import Any

_SGD = "large batches train with adamw or sgd"
_UNUSED = "no recipe set it and no gain was measured"

# section.key or section.table.key -> value that is left (None: any value is ignored), and why it was removed
REMOVED: dict[str, tuple[Any, str]] = {
    "augment.codec_prob": (0.0, _UNUSED),
    "augment.codecs": (None, _UNUSED),
    "data.min_pause_s": (0.2, _UNUSED),
    "features.speaker_vector": (0, "i-vectors raised the errors"),
    "lm.memory_gib": (None, "n-grams are counted in memory"),
    "lm.weights": ((), "held-out text tunes the weights"),
    "model.lf-mmi.ngram_order": (4, _UNUSED),
    "model.lf-mmi.tolerance_rows": (2, _UNUSED),
    "slow.phase_every_h": (0.0, "slow.learners and slow.step_probability simulate stragglers"),
    "slow.phase_factor": (None, _UNUSED),
    "slow.phase_s": (None, _UNUSED),
    **{
        f"{section}.{key}": left
        for section in ("train", "nnlm")
        for key, left in {
            "weight_noise": (0.0, _UNUSED),
            "lamb.weight_decay": (None, _SGD),
            "one-cycle.final_lr_fraction": (0.01, _UNUSED),
            "plateau.least_lr_fraction": (0.01, _UNUSED),
        }.items()
    },
}
# name of a component that is read as another one
REPLACED_COMPONENTS = {"k2-ctc": "ctc"}
# kind and name of a component -> why it was removed
REMOVED_COMPONENTS = {("optimizer", "lamb"): _SGD}
