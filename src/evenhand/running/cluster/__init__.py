"""Many machines: the same judging, as a pool of actors of Ray Data; verdicts go into a folder of shards.

slices.py    what is judged, cut into tasks: row groups of Parquet on any filesystem of Arrow, or pairs read here
coordinator.py    one for all workers: limits, progress, when to stop
worker.py    one worker: a Run of the local runner for each task, written as shards
cluster.py   Ray itself: found, connected to, kept quiet
pooling.py   what is made of several judges' folders
driver.py    who checks, starts, watches and stops all of these
"""

from evenhand.running.cluster.cluster import Cluster, connect, ray_data
from evenhand.running.cluster.coordinator import ClusterProgress, ClusterStanding, Coordinator, Fault
from evenhand.running.cluster.driver import ClusterResult, ScaleOut
from evenhand.running.cluster.slices import Work, local_work, parquet_work
from evenhand.running.cluster.worker import Bench, Recipe

__all__ = [
    "Bench",
    "Cluster",
    "ClusterProgress",
    "ClusterResult",
    "ClusterStanding",
    "Coordinator",
    "Fault",
    "Recipe",
    "ScaleOut",
    "Work",
    "connect",
    "local_work",
    "parquet_work",
    "ray_data",
]
