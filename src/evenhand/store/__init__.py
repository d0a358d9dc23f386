"""What is kept: one SQLite file. All SQL on it is in this folder.

judges    an engine under a protocol, by its fingerprint, with the template's text
pairs     what was compared
conversations  one conversation (judge, texts as shown), by the hash of all that made it
claims    which process is at work on which conversation, now
queue    which conversation is which pair in which order; pairs that show the same texts share a conversation
answers   what the judge said to each question, word for word, with the probabilities of its tokens
verdicts  what was read off the answers
failures  what could not be asked, and why; tried again in the next run
outputs   what models wrote, to be judged; and what could not be written, and why
labels    what people said, each in their own name
runs      when, with which settings, at what cost
inputs    files that were looked through and found good, by a hash of what is in them
finished  which of them a judge was asked all about
calibrations   what brings a judge's probabilities into line with people's labels
batches, batch_items   batches at a service, and the questions that are in one now
batch_leases           which process sees to the batches of a judge
gates     gates that were gone through with --against, with the candidate's score on each instruction

outcomes                          what verdicts come to: one row a pair, judge and dimension
pair_columns, known, facets       what lists and statistics want of a pair besides its texts
annotators, tasks                 who labels on the web page, and which pairs are put before them
"""

from evenhand.store.annotation import AnnotationTask, Annotator, Conflict
from evenhand.store.archive import RunGroup
from evenhand.store.batches import BatchBook, BatchItem, BatchRow
from evenhand.store.database import Entry, JudgeRow, Store
from evenhand.store.gates import GateRecord
from evenhand.store.judgebook import JudgeEntry
from evenhand.store.labels import HumanLabel
from evenhand.store.pages import OutcomeLine, View
from evenhand.store.queue import Job
from evenhand.store.records import Records

__all__ = [
    "AnnotationTask",
    "Annotator",
    "BatchBook",
    "BatchItem",
    "BatchRow",
    "Conflict",
    "Entry",
    "GateRecord",
    "HumanLabel",
    "Job",
    "JudgeEntry",
    "JudgeRow",
    "OutcomeLine",
    "Records",
    "RunGroup",
    "Store",
    "View",
]
