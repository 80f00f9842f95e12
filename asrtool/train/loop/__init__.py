"""Training loop: steps, metrics, and evaluation on dev.

- loop: a training and its steps, from the first to the last batch
- build: its arithmetic, task and strategy, initial or resumed; joining: of a learner that joins others
- gradient_accumulation: a batch in parts that fit in memory
- loss: the loss of a batch and of a set; pipeline: the same with one model on several devices
- straggler: emulated slow learners
- step_records, metrics, host_rates, profile: what is written of the steps
- evaluation: the loss on dev, and early stopping
- stop: SIGINT and SIGTERM between two steps
"""
