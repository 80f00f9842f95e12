"""RESULTS.html.

- template: template, style and script; page: fills it
- worst_utterances, clip: utterances to listen to; describe: figures in words
"""
