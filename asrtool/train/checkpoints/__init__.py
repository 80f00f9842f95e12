"""Checkpoints of a training: times, writing and loading.

- coordinator: times of checkpoints; synchronisation, evaluation and saving at each cut
- snapshots: the parts of asynchronous learners; merge: these parts -> one checkpoint
- checkpointer: copies of the state, and the thread that writes and loads the checkpoints of all learners
- checkpoint: the files of a checkpoint, and those to keep
"""
