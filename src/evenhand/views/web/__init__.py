"""The web page: look at verdicts, and judge blind.

Rendering   text.py, markdown.py, code.py, differences.py, charts.py, conversation.py, overview.py, templating.py:
            plain functions from untrusted text and numbers to safe markup; a static report can call them, too
Serving     app.py (routes), guard.py (who may ask for what), looking.py and agreeing.py (the owner's pages),
            labelling.py (the annotators' page), address.py (a view's place in the address bar),
            site.py (what all pages share), serving.py (from a database to a server)
"""
