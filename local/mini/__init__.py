"""The synthetic conversations behind `local.mini_corpus`."""
