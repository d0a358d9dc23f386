"""Batch APIs: many requests sent at once, answered within a day, at half the price.

service.py    how far a batch is, and what came back of it
client.py     what a batch service can do; files up and down over HTTP, of any size
openai.py     OpenAI's: a file of requests, a batch over it, files of answers and of errors
anthropic.py  Anthropic's: requests in the batch itself, answers in one stream
opening.py    a judge -> its batch service, or why it has none
"""
