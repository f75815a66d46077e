"""The ports that the commands listen on, looked at before anything is started."""

import socket

from django.core.management import CommandError


def require_free_port(host: str, port: int, cure: str) -> None:
    """Raise CommandError, with the way out named in `cure`, if nothing can listen there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # As the servers do, so that the remains of the last run do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
        except OSError as error:
            raise CommandError(
                f"Port {port} on {host} cannot be used: {(error.strerror or str(error)).lower()}."
                f" {cure}"
            ) from None
