"""The loopback interface: which port is free, and which addresses are of this machine."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on right now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def is_loopback(url: str) -> bool:
    """True when the host of `url` is this machine by name or number: a proxy variable must not capture it."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
