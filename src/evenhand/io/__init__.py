"""Files in: pairs, outputs, instructions, labels, in the forms that people bring."""
