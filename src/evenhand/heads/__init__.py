"""Heads: small judges trained on the states of a model."""
