"""Slips in asrtool/settings."""

from . import Patch

PATCHES = (
    Patch(
        "own-class-without-its-base",
        "asrtool/settings/registry.py",
        "fits = not base or",
        "fits = True or",
        ("tests/unit/test_registry.py",),
    ),
    Patch(
        "weight-of-a-corpus-missing",
        "asrtool/settings/data.py",
        'if self.rule != "given" or self.weights.keys() == names:',
        'if self.rule != "given" or self.weights.keys() <= names:',
        ("tests/unit/data/test_mix.py",),
    ),
    Patch(
        "rate-of-the-learners-that-training-began-with",
        "asrtool/settings/distributed.py",
        "self.global_batch_s * num_learners / begun_with / self.reference_batch_s",
        "self.global_batch_s / self.reference_batch_s",
        ("tests/unit/train/optimisation/test_large_batches.py",),
    ),
    Patch(
        "own-strategy-that-says-nothing-survives",
        "asrtool/settings/distributed.py",
        "getattr(self.strategy.settings, what, False)",
        "getattr(self.strategy.settings, what, True)",
        (f"{'tests/unit/train/many_learners/test_own_strategy.py'}::test_one_that_says_nothing_can_do_nothing",),
    ),
    Patch(
        "a-part-of-a-training-corpus-is-further-text",
        "asrtool/settings/lang.py",
        "releases_of(name) & releases_of(corpus.name)",
        "name == corpus.name",
        ("tests/unit/local/test_extra_text.py",),
    ),
)
