"""A folder of Parquet shards: what a run on many machines writes, and what is read as a database is.

place.py     where the folder lies: any filesystem that Arrow knows
schema.py    one row for each pair, and back
writing.py   judge.json, part-*.parquet, run-*.json: each is whole or not there
reading.py   the folder opened: its files checked, each pair counted once
blocks.py    its verdicts as blocks of numbers, without the texts
copying.py   a database's verdicts as a folder
members.py   a folder that is made of other judges' verdicts, and their folders in it
"""

from evenhand.store.shards.place import Place, looks_like_uri
from evenhand.store.shards.reading import Finished, Shards, keys_in, open_shards
from evenhand.store.shards.schema import Failure, OrderRecord, ShardRow, row_name, shard_schema, table_of
from evenhand.store.shards.writing import RunNote, begin_shards, note_run, write_shard

__all__ = [
    "Failure",
    "Finished",
    "OrderRecord",
    "Place",
    "RunNote",
    "ShardRow",
    "Shards",
    "begin_shards",
    "keys_in",
    "looks_like_uri",
    "note_run",
    "open_shards",
    "row_name",
    "shard_schema",
    "table_of",
    "write_shard",
]
