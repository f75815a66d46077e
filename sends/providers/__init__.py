"""One file per provider: send, look up, verify a webhook, read its events, its contract as data."""
