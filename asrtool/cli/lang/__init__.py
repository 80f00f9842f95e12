"""Commands for tokens, lexicon, n-gram and graph."""
