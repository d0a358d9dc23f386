"""The command line: thin commands over the library, one file for each family of them.

Exit codes: 0 done; 1 the machine or the judge failed; 2 wrong use or wrong input; 3 done, but with failures;
130 stopped by Ctrl-C.
"""

from evenhand.cli.app import app, main

# Importing a file of commands enters them; --help lists them in this order.
from evenhand.cli import judge, arena, generate, results, rank, card, calibrate, export, gate, labels  # isort: skip
from evenhand.cli import learn, report, serve, suggest, demo, protocols, models  # isort: skip

__all__ = [
    "app",
    "arena",
    "calibrate",
    "card",
    "demo",
    "export",
    "gate",
    "generate",
    "judge",
    "labels",
    "learn",
    "main",
    "models",
    "protocols",
    "rank",
    "report",
    "results",
    "serve",
    "suggest",
]
