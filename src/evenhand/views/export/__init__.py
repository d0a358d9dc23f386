"""What is kept, in the forms of others: tables, data to train on, AlpacaEval's files.

Each form is a list of columns and a function that makes rows out of judgments, one after the other. docs/export.md
describes every column.
"""

from evenhand.views.export.alpaca import ANNOTATIONS, LEADERBOARD, annotation_rows, leaderboard_rows
from evenhand.views.export.labels import LABELS, exported_labels
from evenhand.views.export.tables import JUDGMENTS, TEXTS, VERDICTS, judgment_rows, verdict_rows
from evenhand.views.export.training import DPO, JUDGE, KTO, dpo_rows, has_no_word, judge_rows, kto_rows

__all__ = [
    "ANNOTATIONS",
    "DPO",
    "JUDGE",
    "JUDGMENTS",
    "KTO",
    "LABELS",
    "LEADERBOARD",
    "TEXTS",
    "VERDICTS",
    "annotation_rows",
    "dpo_rows",
    "exported_labels",
    "has_no_word",
    "judge_rows",
    "judgment_rows",
    "kto_rows",
    "leaderboard_rows",
    "verdict_rows",
]
