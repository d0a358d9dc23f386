"""Heads: small judges trained on the states of a model."""

PREFIX = "head:"  # what the name of a judge begins with that is a head
