"""The only code that counts: it reads outcomes in blocks and makes frozen dataclasses, which all views render."""
