"""RESULTS.html, a page in one file.

- worst_utterances: utterances with most errors, with audio and spectrogram
- page: content of the page
- template: its HTML, style and script
"""
