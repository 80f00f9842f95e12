"""Commands that predict a training.

- theory: convergence of a strategy before anything is trained
- simulate: duration of a training on a cluster
"""
