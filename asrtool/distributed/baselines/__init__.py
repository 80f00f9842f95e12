"""Baselines: other methods of distributed training, for comparison.

- parameter_server: `ps-async` and `ps-sync`: learners push gradients and take weights
- weight_server: the servers, threads beside learners, and the connections to them
- hogwild: `hogwild`: steps on weights in shared memory, without locks
"""
