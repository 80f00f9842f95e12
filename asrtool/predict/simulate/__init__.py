"""Simulation of a training: scenario -> events -> times of each learner.

- settings, scenario: sections of a scenario file, and how it is read
- calibrate: records of a training -> settings of a scenario
- cluster: drawn times of learners, and the links between them
- synchronous_rules, synchronous: strategies whose learners step together, round by round
- queue_clients, asynchronous: strategies whose learners do not wait, as discrete events; numba compiles them
- events, outcome: the log of a simulation and its sums
- simulate: all strategies compared, as a table and sentences
- records: the files of a simulated training
"""
