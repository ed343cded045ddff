"""Measuring a model: perplexity and divergence, and speed."""
