raise ImportError("recipes are data, run them with: asrtool run --recipe NAME")
