"""Predict the duration and the convergence of a training.

- estimate: probe of this machine and the settings of a recipe -> hours and disk space of each stage
- simulate: scenario of a cluster -> time of each strategy, in virtual time
- virtual: events in virtual time -> a model that virtual learners train on one device
- theory: strategy and constants of a loss -> bounds of convergence, mixing rates, largest stable rate
"""
