"""Optimizers and learning-rate schedules.

- learning_rate: settings and the fraction of the training that is done -> learning rate
- optimizer: settings and parameters -> AdamW, SGD or a custom optimizer
"""
