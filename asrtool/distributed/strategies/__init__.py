"""Combine the gradients and weights of learners: the strategies.

- strategy: the interface that the training loop calls, and its simplest strategy: `single`
- update: from gradients to weights: clipping, loss scale, step of the optimizer
- allreduce: `allreduce`: averaged gradients
- replica: learners with weights of their own, and the rules that mix them; `none`
- gossip: `adpsgd`, `adpsgd-fixed`, `adpsgd-random`, `adpsgd-pairs`
- topology: the partner of a learner in a step: rings and pairs
- hierarchical: `h-adpsgd`: gradients averaged in a node, weights mixed between nodes
- delay_by_one: `adpsgd-d1`: the mean of all weights, computed in the background
- bmuf: `bmuf`: the mean of all weights every few steps, with momentum
"""
