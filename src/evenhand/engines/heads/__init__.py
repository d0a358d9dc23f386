"""Heads: small judges trained on the states of a model."""

PREFIX = "head:"  # what the name of a judge begins with that is a head
SHIPPED_HEAD = "general"  # that comes with evenhand, and judges where nobody names another judge


def is_head(judge: str) -> bool:
    """Whether a judge's name stands for a trained head: "head:NAME" or "head:PATH".

    >>> is_head("head:mine.json"), is_head("smollm2-135m")
    (True, False)
    """
    return judge.startswith(PREFIX)
