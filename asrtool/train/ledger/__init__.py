"""Ledger of a training: the batches that are in the weights.

- in_flight: batches assigned to a learner and not yet trained
- learner_records: step records -> the batches that a learner has trained, or nobody has
- ledger: trained batches -> the place of a checkpoint and its untrained batches
"""
