"""The command line: thin commands over the library, one file for each family of them.

Exit codes: 0 done; 1 the machine or the judge failed; 2 wrong use or wrong input; 3 done, but with failures;
130 stopped by Ctrl-C.
"""

from evenhand.views.cli.app import app, load_all, main

__all__ = ["app", "load_all", "main"]
