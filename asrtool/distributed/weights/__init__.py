"""Keep the weights of a model in the form that learners exchange.

- flat: parameters and buffers as views of one flat tensor
- buffers: statistics and counters that a forward pass changes
- ema: the exponential moving average of weights
"""
