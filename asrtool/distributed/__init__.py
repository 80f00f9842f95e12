"""Distributed training: learners, each a process, train one model together.

- world: the rank of this learner, and collectives of all learners
- launch/: how learners are started, and find and reach each other
- members/: heartbeats, lost learners and learners that join
- work/: the batch that a learner trains next
- weights/: the weights of a model as one flat tensor, its buffers, and their average over time
- strategies/: how learners combine gradients and weights
- transport/: exchanges of weights between learners that do not wait for each other
- baselines/: parameter servers and Hogwild, to compare with

A training runs them in this order: launch -> world -> strategies, then for each step work (a batch),
strategies (its update and the mixing of weights) and transport (the exchange under way).
"""
