"""Theory of a strategy; docs/theory.md has the statements.

- system: replicas, speeds and exchanges
- mixing: consensus; staleness: age of gradients; stability: largest rate
- bounds: upper bounds; quadratic: exact moments
- measure: constants from a real model; describe: all of it in words
"""
