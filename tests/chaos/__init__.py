"""A steady load on real processes, and all that can be done to them: nothing twice, none lost."""
