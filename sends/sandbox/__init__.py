"""The sandbox provider: a real email provider over HTTP, with a journal of what it accepted."""
