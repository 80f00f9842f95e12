"""Simulation of a training: scenario -> events -> times of each learner.

- scenario: settings of a simulation, and how they are read
- calibrate: records of a training -> settings of a scenario
- cluster: drawn times of learners, and the links between them
- lock_step: strategies whose learners step together, round by round
- clients, asynchronous: strategies whose learners do not wait, as discrete events; numba compiles them
- events: the log of a simulation and its sums
- simulate: all strategies compared, as a table and sentences
- records: the files of a simulated training
"""
