"""Slips in asrtool/report."""

from . import Patch

RESULTS = "tests/unit/report/test_results.py"

PATCHES = (
    Patch(
        "dense-text-is-sparse",
        "asrtool/report/data_check.py",
        "if rate > middle + limit",
        "if rate > middle + 3 * limit",
        ("tests/unit/report/test_data_check.py",),
    ),
    # Decoding
    Patch(
        "overfitting-by-one-evaluation",
        "asrtool/report/figures/training_figures.py",
        "if last - best < OVERFITTING_PATIENCE or",
        "if last - best < 1 or",
        ("tests/unit/report/test_overfitting.py",),
    ),
    # Reports
    Patch(
        "page-not-escaped",
        "asrtool/report/page/page.py",
        "autoescape=True",
        "autoescape=False",
        ("tests/unit/report/test_page.py::test_what_is_said_or_named_is_no_mark_up",),
    ),
    Patch(
        "figure-of-one-learner",
        "asrtool/report/figures/training_figures.py",
        '"learners": alone',
        '"learners": False',
        ("tests/unit/report/test_plot.py",),
    ),
    Patch(
        "small-set-without-caution",
        "asrtool/report/rates.py",
        "if 0 < words < FEW_WORDS:",
        "if 0 < words < 10:",
        (RESULTS,),
    ),
    Patch(
        "settings-that-are-not-those-of-the-run",
        "asrtool/report/experiment.py",
        'load_config(configs or [_existing(work / SETTINGS, "report")])',
        "load_config(configs)",
        (RESULTS,),
    ),
    Patch(
        "worst-rate-of-a-weight",
        "asrtool/report/rates.py",
        "curve[weight] = min(",
        "curve[weight] = max(",
        ("tests/unit/report/test_weights.py",),
    ),
    Patch(
        "picture-upside-down",
        "asrtool/report/page/worst_utterances.py",
        "axis=1).T[::-1]",
        "axis=1).T",
        ("tests/unit/report/test_clip.py",),
    ),
    Patch(
        "interval-too-narrow",
        "asrtool/report/rates.py",
        "{score.interval.low:.1f} to {score.interval.high:.1f}",
        "{score.counts.wer:.1f} to {score.interval.high:.1f}",
        (RESULTS,),
    ),
)
