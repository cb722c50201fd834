"""Real trained models, read from installed packages with this library's own code."""
