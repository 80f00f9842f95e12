"""Theory of distributed training: strategy, learners, loss -> convergence.

The statements and their proofs are in docs/theory.md.
Letters in names: N replicas, sets of weights that differ; L learners; k steps.

- system: learners, their speeds and strategy; mixing matrices and their spectral gaps
- staleness: age of gradients, computed or from records
- quadratic: course and stability of a training of a quadratic loss
- bounds: theorems on convergence
- measure: constants of the loss of a trained model
- describe: answers as text and JSON
"""
