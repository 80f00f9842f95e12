"""Work in several processes; results come in order.

- processes: pieces of work, their retries, processes of this machine
- executor: processes or Dask workers
- loader: processes that decode batches for a learner
"""
