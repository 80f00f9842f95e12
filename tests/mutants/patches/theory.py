"""Slips in asrtool/theory."""

from . import Patch

MIXING = "asrtool/theory/mixing.py"
STALENESS = "asrtool/theory/staleness.py"
BOUNDS = "asrtool/theory/bounds.py"
QUADRATIC = "asrtool/theory/quadratic.py"
STABILITY = "asrtool/theory/stability.py"
MEASURE = "asrtool/theory/measure.py"
SYSTEM = "asrtool/theory/system.py"
TESTS = "tests/unit/theory"

PATCHES = (
    Patch(
        "theory-exchange-square",
        MIXING,
        "np.eye(num) - 2 * b * (1 - b) * laplacian",
        "np.eye(num) - 2 * b * laplacian",
        (f"{TESTS}/test_mixing_rates.py",),
    ),
    Patch(
        "theory-tenth-of-the-square",
        MIXING,
        "self.num_steps * 2 * math.log(TENTH)",
        "self.num_steps * math.log(TENTH)",
        (f"{TESTS}/test_mixing_rates.py",),
    ),
    Patch(
        "theory-slow-learner-exchanges-as-often",
        MIXING,
        "laplacian_of(system.speeds_N[:, None] * system.partners_NN)",
        "laplacian_of(system.partners_NN)",
        (f"{TESTS}/test_mixing_rates.py",),
    ),
    Patch(
        "theory-pairs-partners",
        SYSTEM,
        "partners_NN[::2, 1::2] = 1 / (num // 2)",
        "partners_NN[::2, 1::2] = 1 / num",
        (f"{TESTS}/test_mixing_rates.py",),
    ),
    Patch(
        "theory-staleness-without-own-exchange",
        STALENESS,
        "fractions = np.concatenate([np.zeros(own), of_others])",
        "fractions = of_others",
        (f"{TESTS}/test_staleness.py",),
    ),
    Patch(
        "theory-staleness-fraction-of-a-step",
        STALENESS,
        "(1 - (ratio - whole) * (1 - one)) ** num",
        "1.0",
        (f"{TESTS}/test_staleness.py",),
    ),
    Patch(
        "theory-bound-without-gap",
        BOUNDS,
        "2 * beta**2 * apart / (1 - root),",
        "2 * beta**2 * apart,",
        (f"{TESTS}/test_bounds.py",),
    ),
    Patch(
        "theory-bound-rate",
        BOUNDS,
        "_root_of(b, 1 / num) / beta,",
        "_root_of(b, 1 / num),",
        (f"{TESTS}/test_bounds.py",),
    ),
    Patch(
        "theory-speed-up",
        BOUNDS,
        "self.extra**2 * self.start / (4 * self.noise**3)",
        "self.extra**2 * self.start / (2 * self.noise**3)",
        (f"{TESTS}/test_bounds.py",),
    ),
    Patch(
        "theory-covariance-one-side",
        QUADRATIC,
        "        covariance_SS[:, step.rows] = covariance_SS @ step.change.T\n",
        "",
        (f"{TESTS}/test_quadratic.py",),
    ),
    Patch(
        "theory-block-momentum",
        QUADRATIC,
        "start += eta * momentum",
        "start += momentum",
        (f"{TESTS}/test_quadratic.py",),
    ),
    Patch(
        "theory-delay",
        STABILITY,
        "(delay - 1) * theta",
        "delay * theta",
        (f"{TESTS}/test_stability.py",),
    ),
    Patch(
        "theory-curvature-one-sided",
        MEASURE,
        "return (there_P - back_P) / (2 * DISTANCE)",
        "return (there_P - back_P) / DISTANCE",
        (f"{TESTS}/test_measure.py",),
    ),
    Patch(
        "theory-between-biased",
        MEASURE,
        "return apart - (1 - 1 / num_groups) * within / each",
        "return apart",
        (f"{TESTS}/test_measure.py",),
    ),
    Patch(
        "theory-between-interval-not-mirrored",
        MEASURE,
        "Interval(value, value - float(high), value - float(low))",
        "Interval(value, value + float(low), value + float(high))",
        (f"{TESTS}/test_measure.py",),
    ),
    Patch(
        "theory-smoothness-of-the-highest-eigenvalue-alone",
        MEASURE,
        "int(np.abs(values).argmax()) if downwards else size - 1",
        "size - 1",
        (f"{TESTS}/test_measure.py",),
    ),
    Patch(
        "theory-rare-staleness-is-none",
        STALENESS,
        "return len(self.fractions) - 1",
        "return int(np.flatnonzero(self.fractions > NEGLIGIBLE)[-1])",
        (f"{TESTS}/test_staleness.py",),
    ),
)
