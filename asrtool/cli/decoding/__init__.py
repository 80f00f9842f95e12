"""Commands that use a model: tune, decode, align, transcribe, export, info."""
