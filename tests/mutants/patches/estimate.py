"""Slips in asrtool/estimate."""

from . import Patch

PATCHES = (
    # Decoding
    Patch(
        "estimate-of-one-speed",
        "asrtool/estimate/needs.py",
        """stored_bytes(features, hours, copies_hours)""",
        """stored_bytes(features, hours, 0)""",
        ("tests/unit/estimate/test_estimate.py",),
    ),
    Patch(
        "operations-of-dropped-weights-are-not-counted",
        "asrtool/estimate/probe.py",
        """    model.eval()  # layers that drop weights do not go through the module
""",
        "",
        ("tests/unit/estimate/test_estimate.py",),
    ),
    Patch(
        "weights-counted-as-kept",
        "asrtool/estimate/probe.py",
        " if place not in weights)",
        " if place in weights)",
        ("tests/unit/estimate/test_estimate.py",),
    ),
    Patch(
        "tokens-of-short-utterances",
        "asrtool/estimate/probe.py",
        "seconds * speech.tokens_a_s",
        "LENGTH_S * speech.tokens_a_s",
        ("tests/unit/estimate/test_estimate.py",),
    ),
    Patch(
        "sequence-training-costs-what-frames-do",
        "asrtool/estimate/needs.py",
        "probes.of(settings))",
        "probes.of(hybrid_settings(settings)))",
        ("tests/unit/estimate/test_estimate.py",),
    ),
)
