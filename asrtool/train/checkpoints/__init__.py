"""Checkpoints of a training: when they are due, how they are written and loaded.

- checkpoint_schedule: when a checkpoint is due
- coordinator: synchronisation, evaluation and saving at each cut
- snapshots: the parts of asynchronous learners; merge: these parts -> one checkpoint
- background: copies of the state, and the thread that writes them
- checkpointer: writes and loads the checkpoints of all learners
- checkpoint: the files of a checkpoint, and those to keep
"""
