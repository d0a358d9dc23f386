"""Files of rows: finding them, reading them one row at a time, writing them.

find_tables("outs/*.jsonl.gz")  -> Table, Table, ...   a file, a glob, a folder, '-'
read_rows(table)                -> (place, row), ...   a row is a mapping, or the fault that kept it from being one
write_rows(path, rows)          -> how many            JSONL, JSON, CSV or Parquet, whole or not at all
"""

from evenhand.core.faults import RowFault
from evenhand.io.files.arrow import SchemaError
from evenhand.io.files.finding import SUFFIXES, Table, find_tables
from evenhand.io.files.reading import Row, read_rows
from evenhand.io.files.writing import WRITES, harmless, write_rows

__all__ = [
    "SUFFIXES",
    "WRITES",
    "Row",
    "RowFault",
    "SchemaError",
    "Table",
    "find_tables",
    "harmless",
    "read_rows",
    "write_rows",
]
