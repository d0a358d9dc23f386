"""A run in batches: half the price, if you can wait.

draft.py      questions on their way into a batch, in a file
sender.py     a draft -> a batch at the service, once; what became of one that a crash cut short
collector.py  a batch that has ended -> answers, verdicts and failures in the store
run.py        rounds of the two, until nothing is left to ask
"""
