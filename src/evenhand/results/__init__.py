"""The only code that counts: outcomes, read in blocks, turned into frozen dataclasses that every view renders."""
