"""Train by other methods, to compare the strategies of the room with.

- parameter_server: `ps-async` and `ps-sync`: learners push gradients and take weights
- weight_server: the servers, threads beside learners, and the connections to them
- hogwild: `hogwild`: steps on weights in shared memory, without locks
"""
