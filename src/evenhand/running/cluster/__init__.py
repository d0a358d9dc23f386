"""Many machines: the same judging, as a pool of actors of Ray Data; verdicts go into a folder of shards.

slices.py    what is judged, cut into tasks: row groups of Parquet on any filesystem of Arrow, or pairs read here
coordinator.py    one for all workers: limits, progress, when to stop
worker.py    one worker: a Run of the local runner for each task, written as shards
cluster.py   Ray itself: found, connected to, kept quiet
pooling.py   what is made of several judges' folders
driver.py    who checks, starts, watches and stops all of these
"""
