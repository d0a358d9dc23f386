"""What evenhand is about: pairs, templates, engines, verdicts, outcomes. Imports nothing of the other folders."""
