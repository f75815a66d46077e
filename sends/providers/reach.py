"""Whether a provider can be reached from here: a connection is made, and nothing is sent."""

import socket
import ssl
from urllib.parse import urlsplit

from sends.providers.http import trusted, why_unsafe

PORTS = {"http": 80, "https": 443}


def why_unreachable(url: str, *, seconds: float) -> str:
    """In words, or "" where a connection was made, with TLS if the URL says so.

    `seconds` binds each step; looking up the name has the system's own limit.
    """
    if reason := why_unsafe(url):
        return reason
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        with socket.create_connection((host, parts.port or PORTS[parts.scheme]), seconds) as raw:
            if parts.scheme == "https":
                raw.settimeout(seconds)
                trusted().wrap_socket(raw, server_hostname=host).close()
    except ssl.SSLCertVerificationError as failure:
        return f"its certificate is not trusted: {failure.verify_message}"
    except OSError as failure:
        return failure.strerror or str(failure)
    return ""
