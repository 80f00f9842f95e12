"""Exchange weights between learners that do not wait for each other.

- staging: copies between the weights of a learner, on the host or a GPU, and its view
- exchange: exchanges of views between learners over ZeroMQ
- view: the public weights of a learner, with consistent records for checkpoints
- sockets: ZeroMQ sockets, and how long a learner waits for an answer
- device: clock and background work, on the host or on a GPU
- event_log: the order of changes to weights, for a replay
"""
