"""The synthetic conversations behind `asrtool.local.mini_corpus`."""
