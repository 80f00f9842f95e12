"""Keep the weights of a model in the form that learners exchange.

- flat: parameters and buffers as views of one flat tensor; statistics and counters
- ema: the exponential moving average of weights
"""
