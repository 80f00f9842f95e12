"""Training as a job of a cluster.

- job: a job of any cluster, and training without one
- slurm: script, submission, and the log of a job of Slurm
- kubernetes: TrainJob of Kubeflow Trainer, its submission, and the log of its first pod
- workers: jobs of Slurm that compute features and decode
"""
