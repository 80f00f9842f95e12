"""The synthetic conversations behind `asrtool.local.mini.corpus`."""
