"""Files of a score: counts, tables, alignments (text and HTML), confusions."""
