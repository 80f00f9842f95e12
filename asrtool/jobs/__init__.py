"""Training as a job of a cluster.

- job: what is submitted, and the place where nothing is
- slurm: script, submission, and the log of a job of Slurm
- workers: jobs of Slurm that compute features and decode
"""
