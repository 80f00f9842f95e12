"""Training, dev and test sets.

- split: the command; split_part: decisions on utterances, as arrays
- held_out: conversations for dev
- duplicates: what scored sets share with training
- hours: estimates before anything is read
"""
