"""Place of a training: this machine, or a job of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from asrtool.settings.schema import Choice, at_least, choice


@dataclass(frozen=True)
class Launch:
    """Place where learners train, and features and decoding are computed."""

    place: Choice = choice("place", "local")  # on this machine, or as a job of a cluster


@dataclass(frozen=True)
class Slurm:
    """Jobs of Slurm."""

    partition: str = ""  # empty is the cluster's default
    account: str = ""  # empty is the user's default
    time: str = ""  # limit of a job as sbatch takes it, such as 24:00:00; a requeued job resumes the training
    nodes: int = 1  # machines that train
    learners_per_node: int = 0  # 0 is one per GPU, or one
    gpus_per_node: int = 0  # all of a node's learners together
    cpus_per_learner: int = 1  # cores of a learner
    memory_per_cpu: str = ""  # as sbatch takes it, such as 4G; empty is the cluster's default
    stop_before_s: int = 120  # seconds before the time limit at which a checkpoint is saved
    options: tuple[str, ...] = ()  # further options of sbatch, such as --constraint=v100
    setup: tuple[str, ...] = ()  # lines of the script before the command, such as module load cuda
    workers: int = 0  # most jobs that compute features and decode, each with one core; 0 does that where asrtool runs

    def __post_init__(self) -> None:
        at_least(1, "launch.slurm", self, "nodes", "cpus_per_learner", "stop_before_s")
        at_least(0, "launch.slurm", self, "learners_per_node", "gpus_per_node", "workers")

    @property
    def num_learners_per_node(self) -> int:
        """Return the number of learners of a node."""
        return self.learners_per_node or self.gpus_per_node or 1


@dataclass(frozen=True)
class Kubernetes:
    """Trainings as TrainJobs of Kubeflow Trainer."""

    image: str = ""  # of asrtool, which the Dockerfile makes
    claim: str = ""  # name of the volume claim (ReadWriteMany) that has the work folder
    mount: str = "/work"  # folder where the claim is mounted, here and in the pods
    namespace: str = ""  # empty is the one of the kubeconfig
    runtime: str = "torch-distributed"  # a ClusterTrainingRuntime of torch
    nodes: int = 1  # pods that train
    learners_per_node: int = 0  # 0 is one per GPU, or one
    gpus_per_node: int = 0  # all of a pod's learners together
    cpus_per_learner: int = 1  # cores of a learner
    memory_per_node: str = ""  # of a pod, such as 16Gi; empty is no limit
    s3_secret: str = ""  # name of a secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; empty is no secret

    def __post_init__(self) -> None:
        at_least(1, "launch.kubernetes", self, "nodes", "cpus_per_learner")
        at_least(0, "launch.kubernetes", self, "learners_per_node", "gpus_per_node")

    @property
    def num_learners_per_node(self) -> int:
        """Return the number of learners of a pod."""
        return self.learners_per_node or self.gpus_per_node or 1
