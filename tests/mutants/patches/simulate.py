"""Slips in what computes without a cluster."""

from . import Patch

GOSSIP = "asrtool/simulate/gossip.py"
CENTRAL = "asrtool/simulate/central.py"
REPLICA = "asrtool/simulate/replica.py"
TOGETHER = "asrtool/simulate/together.py"
VIRTUAL = "tests/unit/train/test_virtual.py"
RULES = "tests/unit/train/test_virtual_rules.py"
REPLAYED = f"{VIRTUAL}::test_an_asynchronous_training_is_replayed_step_by_step"
EQUATIONS = f"{RULES}::test_virtual_learners_in_lock_step_compute_the_equations"
FORKS = f"{RULES}::test_steps_of_a_new_epoch_are_not_in_the_mean_before_it"

TEST_MODEL = "tests/unit/simulate/test_cluster_model.py"
TEST_NETWORK = "tests/unit/simulate/test_network.py"

PATCHES = (
    Patch(
        "answers-are-replayed-in-another-order",
        "asrtool/simulate/replay.py",
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
        "asrtool/simulate/placed.py",
        "        if position is not None and position >= self.sizes[epoch]:\n            position = None\n",
        "",
        ("tests/unit/simulate/test_placed.py",),
    ),
    Patch(
        "ring-without-its-share",
        "asrtool/simulate/network.py",
        "return 2 * (num_learners - 1) / num_learners * (num_bytes / min(rates) + latency_s)",
        "return 2 * (num_bytes / min(rates) + latency_s)",
        (TEST_NETWORK,),
    ),
    Patch(
        "link-takes-all-at-once",
        "asrtool/simulate/asynchronous.py",
        "self.out_s[node] = begin_s + length_s",
        "self.out_s[node] = begin_s",
        (TEST_MODEL,),
    ),
    Patch(
        "rounds-of-the-lost-forgotten",
        "asrtool/simulate/asynchronous.py",
        "self.rounds.left += [left for left in (lost.round, lost.ahead) if left != NONE]",
        "self.rounds.left += []",
        (TEST_MODEL,),
    ),
    Patch(
        "messages-within-a-node-take-no-core",
        "asrtool/simulate/units.py",
        "gather_s + _wait_for_core_s(cluster, rule.all_s + gather_s)",
        "gather_s",
        ("tests/unit/simulate/test_simulate_command.py",),
    ),
    Patch(
        "rate-of-messages-by-the-longest-wait",
        "asrtool/simulate/calibrate.py",
        "[waits_KL.min(axis=1) for waits_KL in groups]",
        "[waits_KL.max(axis=1) for waits_KL in groups]",
        ("tests/unit/simulate/test_simulate_command.py",),
    ),
    Patch(
        "slow-learners-wait-for-cores-as-others",
        "asrtool/simulate/cluster.py",
        "np.maximum(1, factors_L / 2) if together else factors_L",
        "np.ones(num_learners)",
        ("tests/unit/simulate/test_cluster_model.py::test_a_slow_learner_stretches_its_wait_for_a_core_as_well",),
    ),
    Patch(
        "ends-win-over-what-is-known",
        "asrtool/simulate/scenario.py",
        "[*end, *overrides]",
        "[*overrides, *end]",
        ("tests/unit/simulate/test_simulate_command.py",),
    ),
    Patch(
        "a-server-answers-all-at-once",
        "asrtool/simulate/rules.py",
        "self.step_s + self.answered_L",
        "self.step_s + self.answered_L.max()",
        (TEST_MODEL,),
    ),
    Patch(
        "a-server-is-measured-by-all-weights",
        "asrtool/simulate/calibrate.py",
        ' / settings.get("num_servers", 1))',
        ")",
        ("tests/unit/simulate/test_simulate_command.py",),
    ),
)
