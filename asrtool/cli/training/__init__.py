"""Commands that train: train, finetune, average, nnlm, targets."""
