"""Simulation of a training on a cluster, in virtual time.

- scenario, settings: the settings; cluster, network, trace: what they describe
- synchronous, synchronous_rules: strategies in lock-step
- asynchronous, queue_clients, rounds: discrete events for all others
- compiled, _events: the same in C++
- events, outcome, records: what comes out
- simulate: one training; compare, comparison: several side by side
- calibrate: settings from records of real trainings
"""
