"""Slips in what predicts trainings: theory, simulation and estimates."""

from . import Patch

GOSSIP = "asrtool/predict/virtual/gossip.py"
CENTRAL = "asrtool/predict/virtual/shared_weights.py"
REPLICA = "asrtool/predict/virtual/replica.py"
TOGETHER = "asrtool/predict/virtual/synchronous.py"
VIRTUAL = "tests/unit/train/test_virtual.py"
RULES = "tests/unit/train/test_virtual_rules.py"
REPLAYED = f"{VIRTUAL}::test_an_asynchronous_training_is_replayed_step_by_step"
EQUATIONS = f"{RULES}::test_virtual_learners_in_lock_step_compute_the_equations"
FORKS = f"{RULES}::test_steps_of_a_new_epoch_are_not_in_the_mean_before_it"

TEST_MODEL = "tests/unit/predict/test_cluster_model.py"
TEST_NETWORK = "tests/unit/predict/test_network.py"


MIXING = "asrtool/predict/theory/mixing.py"
STALENESS = "asrtool/predict/theory/staleness.py"
BOUNDS = "asrtool/predict/theory/bounds.py"
QUADRATIC = "asrtool/predict/theory/quadratic.py"
STABILITY = "asrtool/predict/theory/quadratic.py"
MEASURE = "asrtool/predict/theory/measure.py"
SYSTEM = "asrtool/predict/theory/system.py"
THEORY = "tests/unit/predict"

PATCHES = (
    # Decoding
    Patch(
        "exchange-skipped-twice",
        "asrtool/predict/simulate/asynchronous.py",
        "        state.sums[learner].skipped += 1",
        "        state.sums[learner].skipped += 2",
        ("tests/unit/predict/test_cluster_model.py",),
    ),
    Patch(
        "server-serves-all-at-once",
        "asrtool/predict/simulate/asynchronous.py",
        "max(seconds, unit.busy_s) + state.setup.host_s",
        "seconds + state.setup.host_s",
        ("tests/unit/predict/test_cluster_model.py",),
    ),
    Patch(
        "estimate-of-one-speed",
        "asrtool/predict/estimate/needs.py",
        """stored_bytes(features, hours, copies_hours)""",
        """stored_bytes(features, hours, 0)""",
        ("tests/unit/predict/test_estimate.py",),
    ),
    Patch(
        "operations-of-dropped-weights-are-not-counted",
        "asrtool/predict/estimate/probe.py",
        """    model.eval()  # layers that drop weights do not go through the module
""",
        "",
        ("tests/unit/predict/test_estimate.py",),
    ),
    Patch(
        "weights-counted-as-kept",
        "asrtool/predict/estimate/probe.py",
        " if place not in weights)",
        " if place in weights)",
        ("tests/unit/predict/test_estimate.py",),
    ),
    Patch(
        "tokens-of-short-utterances",
        "asrtool/predict/estimate/probe.py",
        "seconds * speech.tokens_a_s",
        "LENGTH_S * speech.tokens_a_s",
        ("tests/unit/predict/test_estimate.py",),
    ),
    Patch(
        "sequence-training-costs-what-frames-do",
        "asrtool/predict/estimate/needs.py",
        "probes.of(settings))",
        "probes.of(hybrid_settings(settings)))",
        ("tests/unit/predict/test_estimate.py",),
    ),
    Patch(
        "answers-are-replayed-in-another-order",
        "asrtool/predict/virtual/events.py",
        "key=lambda item: item[0][0])",
        'key=lambda item: item[0][0] + 20_000_000 * (item[0][1] == "take"))',
        (f"{REPLAYED}[adpsgd-random]",),
    ),
    Patch(
        "a-virtual-server-does-not-fork",
        CENTRAL,
        "for epoch, forks in self.forks.items() if client.epoch < epoch]",
        "for epoch, forks in self.forks.items() if client.epoch < 0]",
        (f"{FORKS}[ps-async-0.0]",),
    ),
    Patch(
        "virtual-hogwild-records-nothing-behind-its-copy",
        CENTRAL,
        "            record_P += replica.weights_P - before_P\n",
        "            record_P += 0\n",
        (f"{FORKS}[hogwild-0.01]",),
    ),
    Patch(
        "virtual-gradients-are-summed",
        REPLICA,
        "                    parameter.grad /= len(group)",
        "                    parameter.grad /= 1",
        (f"{EQUATIONS}[allreduce]",),
    ),
    Patch(
        "virtual-delay-by-one-from-its-own-weights",
        TOGETHER,
        "        replica.weights_P[:num_weights].copy_(self.mean_P[:num_weights])\n",
        "",
        (f"{EQUATIONS}[adpsgd-d1]",),
    ),
    Patch(
        "virtual-statistics-are-those-of-the-last-learner",
        REPLICA,
        "            self.buffers_B.copy_(torch.stack(self.statistics).mean(0))\n",
        "",
        (f"{RULES}::test_statistics_of_virtual_learners_by_the_equations[h-adpsgd]",),
    ),
    Patch(
        "a-pull-counts-at-one-end-of-an-epoch",
        GOSSIP,
        "            mean.add_pull(enters.message_P, -1, enters.offset)",
        "            pass",
        (f"{RULES}::test_the_mean_at_an_epoch_has_the_updates_before_it_alone",),
    ),
    Patch(
        "a-round-behind-the-end-of-an-epoch-is-trained",
        "asrtool/predict/virtual/events.py",
        "        if position is not None and position >= self.sizes[epoch]:\n            position = None\n",
        "",
        ("tests/unit/predict/test_placed.py",),
    ),
    Patch(
        "ring-without-its-share",
        "asrtool/predict/simulate/cluster.py",
        "return 2 * (num_learners - 1) / num_learners * (num_bytes / min(rates) + latency_s)",
        "return 2 * (num_bytes / min(rates) + latency_s)",
        (TEST_NETWORK,),
    ),
    Patch(
        "link-takes-all-at-once",
        "asrtool/predict/simulate/asynchronous.py",
        "state.out_s[node] = begin_s + length_s",
        "state.out_s[node] = begin_s",
        (TEST_MODEL,),
    ),
    Patch(
        "rounds-of-the-lost-forgotten",
        "asrtool/predict/simulate/asynchronous.py",
        "self.left += [left for left in (lost.round, lost.ahead) if left != NONE]",
        "self.left += []",
        (TEST_MODEL,),
    ),
    Patch(
        "messages-within-a-node-take-no-core",
        "asrtool/predict/simulate/clients.py",
        "within_s = gather_s + waits_s",
        "within_s = gather_s",
        ("tests/unit/predict/test_simulate_command.py",),
    ),
    Patch(
        "rate-of-messages-by-the-longest-wait",
        "asrtool/predict/simulate/calibrate.py",
        "[waits_KL.min(axis=1) for waits_KL in groups]",
        "[waits_KL.max(axis=1) for waits_KL in groups]",
        ("tests/unit/predict/test_simulate_command.py",),
    ),
    Patch(
        "slow-learners-wait-for-cores-as-others",
        "asrtool/predict/simulate/cluster.py",
        "np.maximum(1, factors_L / 2) if together else factors_L",
        "np.ones(num_learners)",
        ("tests/unit/predict/test_cluster_model.py::test_a_slow_learner_stretches_its_wait_for_a_core_as_well",),
    ),
    Patch(
        "ends-win-over-what-is-known",
        "asrtool/predict/simulate/scenario.py",
        "[*end, *overrides]",
        "[*overrides, *end]",
        ("tests/unit/predict/test_simulate_command.py",),
    ),
    Patch(
        "a-server-answers-all-at-once",
        "asrtool/predict/simulate/lock_step.py",
        "step_s + answered_L +",
        "step_s + answered_L.max() +",
        (TEST_MODEL,),
    ),
    Patch(
        "one-learner-reads-no-batches",
        "asrtool/predict/simulate/lock_step.py",
        "            loaded_s = begin_s + loading_K[number % PERIOD]",
        "            loaded_s = begin_s",
        (f"{TEST_MODEL}::test_one_learner_alone_has_the_bits_of_rounds_that_are_logged",),
    ),
    Patch(
        "a-server-is-measured-by-all-weights",
        "asrtool/predict/simulate/calibrate.py",
        ' / settings.get("num_servers", 1))',
        ")",
        ("tests/unit/predict/test_simulate_command.py",),
    ),
    Patch(
        "theory-exchange-square",
        MIXING,
        "np.eye(num) - 2 * b * (1 - b) * laplacian",
        "np.eye(num) - 2 * b * laplacian",
        (f"{THEORY}/test_mixing_rates.py",),
    ),
    Patch(
        "theory-tenth-of-the-square",
        MIXING,
        "self.num_steps * 2 * math.log(TENTH)",
        "self.num_steps * math.log(TENTH)",
        (f"{THEORY}/test_mixing_rates.py",),
    ),
    Patch(
        "theory-slow-learner-exchanges-as-often",
        MIXING,
        "laplacian_of(system.speeds_N[:, None] * system.partners_NN)",
        "laplacian_of(system.partners_NN)",
        (f"{THEORY}/test_mixing_rates.py",),
    ),
    Patch(
        "theory-pairs-partners",
        SYSTEM,
        "partners_NN[::2, 1::2] = 1 / (num // 2)",
        "partners_NN[::2, 1::2] = 1 / num",
        (f"{THEORY}/test_mixing_rates.py",),
    ),
    Patch(
        "theory-staleness-without-own-exchange",
        STALENESS,
        "fractions = np.concatenate([np.zeros(own), of_others])",
        "fractions = of_others",
        (f"{THEORY}/test_staleness.py",),
    ),
    Patch(
        "theory-staleness-fraction-of-a-step",
        STALENESS,
        "(1 - (ratio - whole) * (1 - one)) ** num",
        "1.0",
        (f"{THEORY}/test_staleness.py",),
    ),
    Patch(
        "theory-bound-without-gap",
        BOUNDS,
        "2 * beta**2 * apart / (1 - root),",
        "2 * beta**2 * apart,",
        (f"{THEORY}/test_bounds.py",),
    ),
    Patch(
        "theory-bound-rate",
        BOUNDS,
        "_root_of(b, 1 / num) / beta,",
        "_root_of(b, 1 / num),",
        (f"{THEORY}/test_bounds.py",),
    ),
    Patch(
        "theory-speed-up",
        BOUNDS,
        "self.extra**2 * self.start / (4 * self.noise**3)",
        "self.extra**2 * self.start / (2 * self.noise**3)",
        (f"{THEORY}/test_bounds.py",),
    ),
    Patch(
        "theory-covariance-one-side",
        QUADRATIC,
        "        covariance_SS[:, step.rows] = covariance_SS @ step.change.T\n",
        "",
        (f"{THEORY}/test_quadratic.py",),
    ),
    Patch(
        "theory-block-momentum",
        QUADRATIC,
        "start += eta * momentum",
        "start += momentum",
        (f"{THEORY}/test_quadratic.py",),
    ),
    Patch(
        "theory-delay",
        STABILITY,
        "(delay - 1) * theta",
        "delay * theta",
        (f"{THEORY}/test_stability.py",),
    ),
    Patch(
        "theory-curvature-one-sided",
        MEASURE,
        "return (there_P - back_P) / (2 * DISTANCE)",
        "return (there_P - back_P) / DISTANCE",
        (f"{THEORY}/test_measure.py",),
    ),
    Patch(
        "theory-between-biased",
        MEASURE,
        "return apart - (1 - 1 / num_groups) * within / each",
        "return apart",
        (f"{THEORY}/test_measure.py",),
    ),
    Patch(
        "theory-between-interval-not-mirrored",
        MEASURE,
        "Interval(value, value - float(high), value - float(low))",
        "Interval(value, value + float(low), value + float(high))",
        (f"{THEORY}/test_measure.py",),
    ),
    Patch(
        "theory-smoothness-of-the-highest-eigenvalue-alone",
        MEASURE,
        "int(np.abs(values).argmax()) if downwards else size - 1",
        "size - 1",
        (f"{THEORY}/test_measure.py",),
    ),
    Patch(
        "theory-rare-staleness-is-none",
        STALENESS,
        "return len(self.fractions) - 1",
        "return int(np.flatnonzero(self.fractions > NEGLIGIBLE)[-1])",
        (f"{THEORY}/test_staleness.py",),
    ),
)
