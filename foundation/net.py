"""Ports and addresses of this machine: which are free, and which are its own."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from foundation.errors import UserError


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on right now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet. Raises UserError when the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as exc:
        raise UserError(f"--host {host}: no address of this machine ({exc.strerror}); 127.0.0.1 always is") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as exc:
        listener.close()
        raise UserError(
            f"--host {host} --port {port}: cannot be taken ({exc.strerror}); stop what uses the port, or choose "
            "another one with --port"
        ) from None
    return listener


def http_address(host: str, port: int) -> str:
    """http://HOST:PORT, an IPv6 number in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(url: str) -> bool:
    """True when the host of `url` is this machine by name or number: a proxy variable must not capture it."""
    return is_own_host(urlsplit(url).hostname or "", or_any=True)


def is_own_host(host: str, *, or_any: bool = False) -> bool:
    """True for a name or number that this machine alone can reach; `or_any`: also for 0.0.0.0 and ::."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or (or_any and address.is_unspecified)
