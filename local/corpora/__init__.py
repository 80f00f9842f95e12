"""One module a corpus, which holds a class Corpus (local/corpus.py). data.train, data.dev and data.test name them."""
