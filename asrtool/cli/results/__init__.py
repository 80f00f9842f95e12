"""Commands on results: score, compare, report, plot."""
