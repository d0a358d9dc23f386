"""What is kept: one SQLite file. All SQL of the project is in this folder.

judges    an engine under a protocol, by its fingerprint, with the template's text
pairs     what was compared
hearings  one conversation (judge, texts as shown), by the hash of all that made it
docket    which hearing is which pair in which order; pairs that show the same texts share a hearing
answers   what the judge said to each ask, word for word, with the probabilities of its tokens
verdicts  what was read off the answers
failures  what could not be asked, and why; tried again in the next run
labels    what people said, each in their own name
runs      when, with which settings, at what cost
"""

from evenhand.store.database import Case, JudgeRow, Store
from evenhand.store.labels import HumanLabel, LabelBook, LabelCount

__all__ = ["Case", "HumanLabel", "JudgeRow", "LabelBook", "LabelCount", "Store"]
