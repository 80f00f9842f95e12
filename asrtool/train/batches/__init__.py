"""Batches of a training: sources, plans, targets and augmentation.

- source: the interface of sources, and the known batches of an epoch
- text_encoding: texts -> tokens
- utterance_columns: index and texts -> columns of the trainable utterances
- shard_source: shards of features; sentence_source: sentences of texts
- frame_targets: pdfs of the decision tree as targets
- plan: the batches from the resumed state to the end of the training, in rounds
- online_augment: audio augmented anew in each epoch
- batch: inputs and targets of a step
- augment: SpecAugment and sequence noise of a batch
"""
