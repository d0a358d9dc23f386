"""The report that can be mailed: all that a database says, in one file.

facts.py      one pass over each judge's judgments -> Dossier, plain facts
effects.py    what place and length do to verdicts, from columns of a few bytes a pair
draws.py      which pairs are shown: a few of each kind, and more by the seed
passages.py   untrusted text in Markdown, where it can neither break out nor call anybody
summary.py    a Dossier as Markdown, for a pull request
page.py       a Dossier as one HTML file that opens offline; needs the extra evenhand[web]
pictures.py   the plots of that file; without the extra evenhand[plot] it has smaller ones
"""

from evenhand.dossier.facts import Dossier, JudgePart, Wishes, compile_dossier

__all__ = ["Dossier", "JudgePart", "Wishes", "compile_dossier"]
