"""Training, dev and test sets.

- split: the command; split_part, utterance_columns: decisions as arrays
- held_out: conversations for dev
- duplicates, repeated_text: what scored sets share with training
- hours: estimates before anything is read
"""
