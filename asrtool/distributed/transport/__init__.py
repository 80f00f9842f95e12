"""Exchange weights between learners that do not wait for each other.

- exchange: exchanges of views between learners over ZeroMQ
- view: the public weights of a learner, with consistent records for checkpoints
- staging: copies between weights on a GPU and their view on the host
- sockets: ZeroMQ sockets, and how long a learner waits for an answer
- device: clock and background work, on the host or on a GPU
- event_log: the order of changes to weights, for a replay
"""
