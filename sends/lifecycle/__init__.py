"""One file per step in the life of an intent; the only code that writes."""
