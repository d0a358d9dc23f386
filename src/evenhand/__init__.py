"""A pairwise judge for language-model outputs: both orders heard, biases measured, every verdict kept."""

from importlib.metadata import version

__version__ = version("evenhand")

from evenhand.api import Judge
from evenhand.engines.base import Answer, Engine, Token, Usage
from evenhand.engines.scripted import ScriptedEngine
from evenhand.errors import EngineError, EvenhandError, InputError, ModelError, StoreError
from evenhand.judge import Judgment
from evenhand.pairs import Pair, read_pairs
from evenhand.protocol import Protocol
from evenhand.store import Store
from evenhand.verdict import Outcome, Verdict

__all__ = [
    "Answer",
    "Engine",
    "EngineError",
    "EvenhandError",
    "InputError",
    "Judge",
    "Judgment",
    "ModelError",
    "Outcome",
    "Pair",
    "Protocol",
    "ScriptedEngine",
    "Store",
    "StoreError",
    "Token",
    "Usage",
    "Verdict",
    "read_pairs",
]
