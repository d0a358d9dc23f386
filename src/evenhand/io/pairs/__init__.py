"""What is compared: a Pair, files of pairs, and pairs made out of models' outputs.

Rows of any tool come in through one door (`recognition`), which knows a format by its fields and puts its rows into
evenhand's own words; `rows.pair_from` and `outputs.output_from` are the only makers of pairs and outputs.

A file is read twice: once to check every row before anything is judged, once to stream the pairs. Neither
pass keeps the pairs in memory; the check keeps eight bytes a row, to find ids that stand twice.
"""

from evenhand.core.pair import DIMENSIONS, Pair
from evenhand.io.pairs.arena import Arena
from evenhand.io.pairs.join import JoinOptions, Unmatched, join_outputs
from evenhand.io.pairs.reading import check_pairs, mark_of, read_pairs, read_rows, sample_pairs
from evenhand.io.pairs.rows import pair_from

__all__ = [
    "DIMENSIONS",
    "Arena",
    "JoinOptions",
    "Pair",
    "Unmatched",
    "check_pairs",
    "join_outputs",
    "mark_of",
    "pair_from",
    "read_pairs",
    "read_rows",
    "sample_pairs",
]
