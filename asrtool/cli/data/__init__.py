"""Commands that read corpora: corpus, prepare, check, features, cut."""
