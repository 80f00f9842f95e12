"""Train a model: batches, the training loop, checkpoints and fine-tuning.

- train: features and tokenizer -> the job of an acoustic model; nnlm: texts -> a neural language model
- derived_settings: settings chosen by hours of speech, and of each training of a chain
- job, inputs: the description of a training, and digests of its settings and data
- run: opens the folder of a training, and starts its learners
- finetune: initial weights from a trained model, and frozen parameters
- batches/: sources, plans of epochs, augmentation
- loop/: forward, backward, metrics, evaluation on dev
- optimisation/: optimizers and learning-rate schedules
- ledger: the batches that each learner has been assigned and has trained
- checkpoints/: times of checkpoints; writing, merging and loading
- average: the mean of the weights of several checkpoints
"""
