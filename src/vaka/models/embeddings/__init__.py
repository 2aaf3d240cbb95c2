"""Embedders: a provider's, feature hashing, MiniLM."""
