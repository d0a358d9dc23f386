"""The tables, and the steps by which an older file comes to have them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from evenhand.core.errors import StoreError
from evenhand.store.opening import APPLICATION_ID

_STALE_TRIGGERS = (
    *(f"stale_{table}_{event}" for table in ("verdicts", "failures") for event in ("INSERT", "DELETE")),
    *("stale_failures_UPDATE", "stale_docket_INSERT", "stale_docket_UPDATE"),
    *("stale_labels_INSERT", "stale_labels_DELETE", "stale_pairs_update"),
)
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE judges (
            id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL UNIQUE, model TEXT NOT NULL,
            identity TEXT NOT NULL, protocol TEXT NOT NULL, template TEXT NOT NULL,
            dimensions TEXT NOT NULL, raw_markup INTEGER NOT NULL, created REAL NOT NULL)""",
        """CREATE TABLE pairs (
            id INTEGER PRIMARY KEY, name TEXT NOT NULL, key TEXT NOT NULL, instruction TEXT NOT NULL,
            output_1 TEXT NOT NULL, output_2 TEXT NOT NULL, model_1 TEXT NOT NULL, model_2 TEXT NOT NULL,
            labels TEXT NOT NULL, metadata TEXT NOT NULL, UNIQUE (name, key))""",
        """CREATE TABLE hearings (
            id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, judge INTEGER NOT NULL REFERENCES judges)""",
        """CREATE TABLE docket (
            pair INTEGER NOT NULL REFERENCES pairs, judge INTEGER NOT NULL REFERENCES judges,
            "order" TEXT NOT NULL, hearing INTEGER NOT NULL REFERENCES hearings,
            PRIMARY KEY (judge, pair, "order")) WITHOUT ROWID""",
        """CREATE TABLE answers (
            hearing INTEGER NOT NULL REFERENCES hearings, ask INTEGER NOT NULL, text TEXT NOT NULL,
            tokens TEXT NOT NULL, finish TEXT NOT NULL, samples TEXT NOT NULL, notes TEXT NOT NULL,
            computed INTEGER NOT NULL, reused INTEGER NOT NULL,
            generated INTEGER NOT NULL, created REAL NOT NULL, PRIMARY KEY (hearing, ask)) WITHOUT ROWID""",
        """CREATE TABLE verdicts (
            hearing INTEGER NOT NULL REFERENCES hearings, dimension TEXT NOT NULL, label TEXT,
            p_a REAL, p_b REAL, p_tie REAL, mass REAL, invalid TEXT,
            PRIMARY KEY (hearing, dimension)) WITHOUT ROWID""",
        """CREATE TABLE failures (
            hearing INTEGER PRIMARY KEY REFERENCES hearings, ask INTEGER NOT NULL, reason TEXT NOT NULL,
            detail TEXT NOT NULL, attempts INTEGER NOT NULL, created REAL NOT NULL)""",
        """CREATE TABLE runs (
            id INTEGER PRIMARY KEY, judge INTEGER NOT NULL REFERENCES judges, settings TEXT NOT NULL,
            started REAL NOT NULL, ended REAL, pairs INTEGER, asked INTEGER, computed INTEGER,
            reused INTEGER, generated INTEGER)""",
    ),
    (
        """CREATE TABLE labels (
            pair TEXT NOT NULL, dimension TEXT NOT NULL, annotator TEXT NOT NULL, side TEXT,
            "order" TEXT, note TEXT NOT NULL, seconds REAL, source TEXT NOT NULL, created REAL NOT NULL,
            PRIMARY KEY (pair, dimension, annotator)) WITHOUT ROWID""",
        "CREATE INDEX pairs_by_key ON pairs (key)",
    ),
    # For the web page: findings kept ready for lists, and the desk at which people label.
    (
        """CREATE TABLE findings (
            judge INTEGER NOT NULL, dimension TEXT NOT NULL, pair INTEGER NOT NULL, side TEXT,
            p_1 REAL, p_2 REAL, p_tie REAL, doubt REAL NOT NULL, inconsistent INTEGER NOT NULL, invalid TEXT,
            mass REAL NOT NULL, masses INTEGER NOT NULL, first INTEGER NOT NULL, places INTEGER NOT NULL,
            known TEXT, split INTEGER NOT NULL, gap INTEGER NOT NULL,
            PRIMARY KEY (judge, dimension, pair)) WITHOUT ROWID""",
        "CREATE INDEX findings_by_doubt ON findings (judge, dimension, doubt, pair)",
        "CREATE INDEX findings_by_pair ON findings (pair)",
        """CREATE TABLE briefs (
            pair INTEGER PRIMARY KEY, key TEXT NOT NULL, name TEXT NOT NULL, excerpt TEXT NOT NULL,
            model_1 TEXT NOT NULL, model_2 TEXT NOT NULL, length_1 INTEGER NOT NULL, length_2 INTEGER NOT NULL)""",
        """CREATE TABLE facets (
            field TEXT NOT NULL, value TEXT NOT NULL, pair INTEGER NOT NULL,
            PRIMARY KEY (field, value, pair)) WITHOUT ROWID""",
        "CREATE INDEX facets_by_pair ON facets (pair)",
        "CREATE INDEX docket_by_hearing ON docket (hearing)",
        "CREATE INDEX docket_by_pair ON docket (pair)",
        # Hearings whose findings are to be made anew. Whoever writes need not know: triggers enter them here.
        # (Not by INSERT OR IGNORE: the conflict clause of the statement that fires a trigger would overrule it.)
        "CREATE TABLE stale (hearing INTEGER PRIMARY KEY)",
        *(
            f"""CREATE TRIGGER stale_{table}_{event} AFTER {event} ON {table}
            WHEN {row}.hearing NOT IN (SELECT hearing FROM stale) {also}
            BEGIN INSERT INTO stale VALUES ({row}.hearing); END"""
            for table, event, row, also in (
                ("verdicts", "INSERT", "NEW", ""),
                ("verdicts", "DELETE", "OLD", ""),
                ("failures", "INSERT", "NEW", ""),
                ("failures", "UPDATE", "NEW", ""),
                ("failures", "DELETE", "OLD", ""),
                ("docket", "INSERT", "NEW", ""),
                ("docket", "UPDATE", "NEW", "AND OLD.hearing IS NOT NEW.hearing"),
            )
        ),
        *(
            f"""CREATE TRIGGER stale_labels_{event} AFTER {event} ON labels
            BEGIN INSERT INTO stale SELECT DISTINCT d.hearing FROM pairs p JOIN docket d ON d.pair = p.id
            WHERE p.key = {row}.pair AND d.hearing NOT IN (SELECT hearing FROM stale); END"""
            for event, row in (("INSERT", "NEW"), ("DELETE", "OLD"))
        ),
        """CREATE TRIGGER stale_pairs_update AFTER UPDATE ON pairs
            WHEN OLD.labels IS NOT NEW.labels OR OLD.metadata IS NOT NEW.metadata
            OR OLD.model_1 IS NOT NEW.model_1 OR OLD.model_2 IS NOT NEW.model_2
            BEGIN INSERT INTO stale SELECT DISTINCT hearing FROM docket
            WHERE pair = NEW.id AND hearing NOT IN (SELECT hearing FROM stale); END""",
        "INSERT INTO stale SELECT DISTINCT hearing FROM docket",
        """CREATE TABLE annotators (
            name TEXT PRIMARY KEY, secret TEXT NOT NULL UNIQUE, seed INTEGER NOT NULL, dimensions TEXT NOT NULL,
            protocol TEXT NOT NULL, rubric TEXT NOT NULL, created REAL NOT NULL) WITHOUT ROWID""",
        """CREATE TABLE tasks (
            annotator TEXT NOT NULL REFERENCES annotators, place INTEGER NOT NULL, pair TEXT NOT NULL,
            "order" TEXT NOT NULL, shared INTEGER NOT NULL, done REAL,
            PRIMARY KEY (annotator, place), UNIQUE (annotator, pair)) WITHOUT ROWID""",
    ),
    (
        # Claims stood in two columns of `hearings` once, which an older file still has. By themselves they are a
        # handful of rows that come and go, and letting go of them does not write the hearings again.
        """CREATE TABLE IF NOT EXISTS claims (
            hearing INTEGER PRIMARY KEY REFERENCES hearings, worker TEXT NOT NULL, claimed REAL NOT NULL)""",
    ),
    # What brings a judge's probabilities into line with people's labels, beside the judge that it belongs to.
    (
        """CREATE TABLE calibrations (
            judge INTEGER NOT NULL REFERENCES judges, dimension TEXT NOT NULL, model TEXT NOT NULL,
            created REAL NOT NULL, PRIMARY KEY (judge, dimension)) WITHOUT ROWID""",
    ),
    (
        """CREATE TABLE outputs (
            key TEXT PRIMARY KEY, model TEXT NOT NULL, settings TEXT NOT NULL, instruction TEXT NOT NULL,
            text TEXT, finish TEXT NOT NULL, reason TEXT NOT NULL, detail TEXT NOT NULL, attempts INTEGER NOT NULL,
            computed INTEGER NOT NULL, reused INTEGER NOT NULL, generated INTEGER NOT NULL,
            created REAL NOT NULL) WITHOUT ROWID""",
    ),
    # Files of pairs that were read once and found good, by a hash of their bytes; and who has judged all of one.
    (
        "CREATE TABLE inputs (mark TEXT PRIMARY KEY, pairs INTEGER NOT NULL, checked REAL NOT NULL) WITHOUT ROWID",
        """CREATE TABLE finished (
            mark TEXT NOT NULL, judge INTEGER NOT NULL REFERENCES judges, orders TEXT NOT NULL, ended REAL NOT NULL,
            PRIMARY KEY (mark, judge, orders)) WITHOUT ROWID""",
    ),
    # Which side of a pair is the candidate ('1' or '2'; the other is the baseline); '' where no roles were given.
    ("ALTER TABLE pairs ADD COLUMN candidate TEXT NOT NULL DEFAULT ''",),
    # One table of outcomes, written with the verdicts that they rest on. What the web page kept for itself goes.
    (
        *(f"DROP TRIGGER IF EXISTS {name}" for name in _STALE_TRIGGERS),
        "DROP TABLE IF EXISTS stale",
        "DROP TABLE IF EXISTS findings",
        "DROP TABLE IF EXISTS briefs",
        """CREATE TABLE outcomes (
            judge INTEGER NOT NULL, dimension TEXT NOT NULL, pair INTEGER NOT NULL, said INTEGER NOT NULL,
            p_1 REAL, p_2 REAL, p_tie REAL, mass REAL NOT NULL, reason TEXT, uncertainty REAL NOT NULL,
            split INTEGER NOT NULL DEFAULT 0,
            side TEXT GENERATED ALWAYS AS (CASE said & 3 WHEN 1 THEN '1' WHEN 2 THEN '2' WHEN 3 THEN 'tie' END),
            forward TEXT GENERATED ALWAYS AS
                (CASE said >> 2 & 3 WHEN 1 THEN '1' WHEN 2 THEN '2' WHEN 3 THEN 'tie' END),
            swapped TEXT GENERATED ALWAYS AS
                (CASE said >> 4 & 3 WHEN 1 THEN '1' WHEN 2 THEN '2' WHEN 3 THEN 'tie' END),
            inconsistent INTEGER GENERATED ALWAYS AS (said >> 10 & 1),
            PRIMARY KEY (judge, dimension, pair)) WITHOUT ROWID""",
        "CREATE INDEX outcomes_by_uncertainty ON outcomes (judge, dimension, uncertainty, pair)",
        """CREATE TABLE pair_columns (
            pair INTEGER PRIMARY KEY, key INTEGER NOT NULL, cluster INTEGER NOT NULL, model_1 TEXT NOT NULL,
            model_2 TEXT NOT NULL, length_1 INTEGER NOT NULL, length_2 INTEGER NOT NULL,
            candidate TEXT NOT NULL)""",
        """CREATE TABLE known (
            pair INTEGER NOT NULL, dimension TEXT NOT NULL, side TEXT,
            PRIMARY KEY (pair, dimension)) WITHOUT ROWID""",
        # Shares of several answers are not probabilities of tokens, and are pooled in another way.
        "ALTER TABLE verdicts ADD COLUMN counted INTEGER NOT NULL DEFAULT 0",
        "UPDATE verdicts SET counted = 1 WHERE p_a IS NOT NULL"
        " AND hearing IN (SELECT hearing FROM answers WHERE samples <> '[]')",
        # Pairs of which all this is still to be made: those of an older file, some at a time.
        "CREATE TABLE dirty (pair INTEGER PRIMARY KEY)",
        "INSERT INTO dirty SELECT id FROM pairs",
    ),
    # How a pair came to be labelled: `design`, the probability with which it was drawn, and `among`, the number of
    # the newest pair that could have been drawn. Of older labels nobody knows. `suggestions` waits for labels.
    (
        *(
            step
            for table in ("labels", "tasks")
            for step in (
                f"ALTER TABLE {table} ADD COLUMN design TEXT NOT NULL DEFAULT 'unknown'",
                f"ALTER TABLE {table} ADD COLUMN probability REAL",
                f"ALTER TABLE {table} ADD COLUMN among INTEGER",
            )
        ),
        """CREATE TABLE suggestions (
            pair TEXT NOT NULL, dimension TEXT NOT NULL, design TEXT NOT NULL, probability REAL, among INTEGER,
            created REAL NOT NULL, PRIMARY KEY (pair, dimension)) WITHOUT ROWID""",
    ),
    # Gates that judged all they drew, with the candidate's score on each instruction.
    (
        """CREATE TABLE gates (
            id INTEGER PRIMARY KEY, judge INTEGER NOT NULL REFERENCES judges, dimension TEXT NOT NULL,
            candidate TEXT NOT NULL, passed INTEGER NOT NULL, scores TEXT NOT NULL, created REAL NOT NULL)""",
    ),
    # One set of words.
    (
        "ALTER TABLE hearings RENAME TO conversations",
        "ALTER TABLE docket RENAME TO queue",
        *(
            f"ALTER TABLE {table} RENAME COLUMN hearing TO conversation"
            for table in ("queue", "answers", "verdicts", "failures", "claims")
        ),
        *(f"ALTER TABLE {table} RENAME COLUMN ask TO question" for table in ("answers", "failures")),
        *(
            f"UPDATE {table} SET dimension = '{new}' WHERE dimension = '{old}'"
            for table in ("verdicts", "calibrations")
            for old, new in (("alone", "good_1"), ("beside", "good_2"))
        ),
        """UPDATE judges SET dimensions =
            replace(replace(dimensions, '"alone"', '"good_1"'), '"beside"', '"good_2"')""",
        "DROP INDEX docket_by_hearing",
        "DROP INDEX docket_by_pair",
        "CREATE INDEX queue_by_conversation ON queue (conversation)",
        "CREATE INDEX queue_by_pair ON queue (pair)",
    ),
    # What a model's state was behind a response, for trained heads; by content, in half precision.
    (
        """CREATE TABLE vectors (
            reader TEXT NOT NULL, key TEXT NOT NULL, vector BLOB NOT NULL, tokens INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (reader, key)) WITHOUT ROWID""",
    ),
    # Batches at a service, the questions that are in one now, and which process sees to the batches of a judge.
    (
        """CREATE TABLE batches (
            id INTEGER PRIMARY KEY, judge INTEGER NOT NULL REFERENCES judges, service TEXT NOT NULL,
            token TEXT NOT NULL UNIQUE, requests INTEGER NOT NULL, state TEXT NOT NULL,
            remote TEXT NOT NULL DEFAULT '', file TEXT NOT NULL DEFAULT '', newest TEXT NOT NULL DEFAULT '',
            rejected TEXT NOT NULL DEFAULT '[]', lessons TEXT NOT NULL, answered INTEGER NOT NULL DEFAULT 0,
            failed INTEGER NOT NULL DEFAULT 0, created REAL NOT NULL, submitted REAL, ended REAL)""",
        """CREATE TABLE batch_items (
            conversation INTEGER PRIMARY KEY REFERENCES conversations, batch INTEGER NOT NULL REFERENCES batches,
            question INTEGER NOT NULL, notes TEXT NOT NULL)""",
        "CREATE INDEX batch_items_by_batch ON batch_items (batch)",
        """CREATE TABLE batch_leases (
            judge INTEGER PRIMARY KEY REFERENCES judges, worker TEXT NOT NULL, claimed REAL NOT NULL)""",
    ),
    # Adjudication: an adjudicator's label decides a pair and is no vote. `asked` are the dimensions of one task,
    # where they are not all that the annotator is asked for.
    (
        "ALTER TABLE labels ADD COLUMN role TEXT NOT NULL DEFAULT 'annotator'",
        "ALTER TABLE annotators ADD COLUMN role TEXT NOT NULL DEFAULT 'annotator'",
        "ALTER TABLE tasks ADD COLUMN asked TEXT NOT NULL DEFAULT ''",
    ),
    # The numbers of all outcomes of a pair in one value, which is read five times as fast as their rows.
    (
        """CREATE TABLE packed (
            judge INTEGER NOT NULL, pair INTEGER NOT NULL, numbers BLOB NOT NULL,
            PRIMARY KEY (judge, pair)) WITHOUT ROWID""",
        "INSERT OR IGNORE INTO dirty SELECT pair FROM outcomes GROUP BY pair",
    ),
)


def migrate(db: sqlite3.Connection, path: str) -> None:
    """Bring a file to the present form; a step and its mark are one transaction."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > len(MIGRATIONS):
        raise StoreError(f"{path} was written by a newer evenhand", hint="pip install -U evenhand")
    if version == len(MIGRATIONS):
        return
    for number, steps in enumerate(MIGRATIONS[version:], version + 1):
        db.execute("BEGIN IMMEDIATE")
        # Another process may have done it while this one waited for the lock.
        if db.execute("PRAGMA user_version").fetchone()[0] < number:
            for step in steps:
                db.execute(step)
            db.execute(f"PRAGMA user_version = {number}")
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("COMMIT")


@contextmanager
def clearly(path: str) -> Iterator[None]:
    """Say what is wrong with the database in one sentence instead of SQLite's own words alone."""
    try:
        yield
    except UnicodeDecodeError as fault:  # SQLite's own message quotes a name that was damaged
        raise StoreError(
            f"the database {path} cannot be used: it is damaged", hint="what can be read: sqlite3 FILE .recover"
        ) from fault
    except sqlite3.DatabaseError as fault:
        said = str(fault)
        hints = {
            "not a database": "name another file with --db",
            "malformed": "what can be read: sqlite3 FILE .recover",
            "locked": "another program holds the file open for writing; try again when it is done",
            "full": "the disk is full; make room and run the same command again: it goes on where it stopped",
            "readonly": "the file or its folder cannot be written to",
            "unable to open": "does the folder exist, and may you write to it?",
        }
        hint = next((text for word, text in hints.items() if word in said), "")
        raise StoreError(f"the database {path} cannot be used: {said}", hint=hint) from fault
