"""Training by virtual learners in one process.

- training: the command; learners: all learners; replica: the weights of one
- batches, rounds: what each trains
- rule, rules: what an event does to weights; synchronous, gossip, shared_weights: by strategy
- equal_speed_events, replay: where events come from
- records: files as a real training writes them
"""
