"""Work that takes long: many pairs, on this machine or on many, within limits of speed and money."""
