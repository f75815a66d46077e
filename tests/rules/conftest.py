"""How properties are tried: the same examples in each run, however slow the machine is."""

from hypothesis import settings

settings.register_profile("rules", deadline=None, derandomize=True, max_examples=300)
settings.load_profile("rules")
