"""A pairwise judge for language-model outputs: both orders judged, biases measured, every verdict kept."""

from importlib.metadata import version

__version__ = version("evenhand")

from evenhand.core.engine import Answer, Engine, Token, Usage
from evenhand.core.errors import EngineError, EvenhandError, InputError, ModelError, StoreError
from evenhand.core.judge import Judgment
from evenhand.core.pair import Pair
from evenhand.core.protocol import Protocol
from evenhand.core.verdict import Outcome, Verdict
from evenhand.engines.scripted import ScriptedEngine
from evenhand.io.pairs import read_pairs
from evenhand.store import Store
from evenhand.views.api import Judge
from evenhand.views.jury import Escalation, Jury

__all__ = [
    "Answer",
    "Engine",
    "EngineError",
    "Escalation",
    "EvenhandError",
    "InputError",
    "Judge",
    "Judgment",
    "Jury",
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
