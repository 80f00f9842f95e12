"""Virtual learners: all learners of a strategy, trained on one device.

- events: order of the steps, from a simulation or the log of a training
- replica: weights of learners, batches of their steps, and the interface of a strategy
- synchronous, gossip, shared_weights: the strategies
- learners: the loop that follows events, trains and evaluates
- training: a scenario trained by each strategy, with the files of a training
"""
