"""Work in several processes; results come in order.

- task: a piece of work and its retries
- processes: processes of this machine
- executor: processes or Dask workers
- loader: processes that decode batches for a learner
"""
