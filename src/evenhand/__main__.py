"""python -m evenhand."""

from evenhand.views.cli import main

main()
