"""The web page: look at verdicts, and judge blind.

Rendering   text.py, markdown.py, code.py, differences.py, conversation.py, overview.py, templating.py:
            plain functions from untrusted text and numbers to safe markup; a static report can call them, too
Serving     app.py (routes), guard.py (who may ask for what), pair_pages.py, agreeing.py and people_pages.py (the
            owner's pages), uploads.py (a file that the owner sends), labelling.py (the annotators' page),
            address.py (a view's place in the address bar), site.py (what all pages share), serving.py (from a
            database to a server)
"""
