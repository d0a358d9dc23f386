"""Many machines: the same judging, as a pool of actors of Ray Data; verdicts go into a folder of shards.

slices.py    what is judged, cut into tasks: row groups of Parquet on any filesystem of Arrow, or pairs read here
keeper.py    one for all workers: limits, progress, when to stop
worker.py    one worker: a Run of the local runner for each task, written as shards
cluster.py   Ray itself: found, connected to, kept quiet
driver.py    who checks, starts, watches and stops all of these
"""

from evenhand.scaleout.cluster import Cluster, connect, ray_data
from evenhand.scaleout.driver import Outcome, ScaleOut
from evenhand.scaleout.keeper import Fault, Keeper, Progress, Standing
from evenhand.scaleout.slices import Work, local_work, parquet_work
from evenhand.scaleout.worker import Bench, Recipe

__all__ = [
    "Bench",
    "Cluster",
    "Fault",
    "Keeper",
    "Outcome",
    "Progress",
    "Recipe",
    "ScaleOut",
    "Standing",
    "Work",
    "connect",
    "local_work",
    "parquet_work",
    "ray_data",
]
