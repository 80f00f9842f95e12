"""Commands that train.

- targets: align features and grow a decision tree
- train: train an acoustic model
- finetune: fine-tune a model on other features or with another tokenizer
- average: average checkpoints into one model file
- nnlm: train a neural language model
"""
