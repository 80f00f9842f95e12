"""Commands that predict a training: theory, simulate."""
