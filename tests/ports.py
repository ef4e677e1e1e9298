"""Ports of the loopback interface for servers that have to know theirs before they listen, or keep it over restarts.

A port that the kernel picks may be taken again between its choice and its use, by a server or by an outgoing connection
of another test. These ports lie below the kernel's range, and each stays reserved for as long as the process that asked
for it lives. Where port 0 serves, use that instead.
"""

import fcntl
import os
import socket
import tempfile
from pathlib import Path

PORT_FIRST = 16_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_EPHEMERAL_FIRST = 32_768
"""Where the kernel's own choices begin unless it says otherwise."""

_reserved: set[int] = set()
_file = -1


def free_port() -> int:
    """A port that nobody listens at, and that no other process of this user is given while this one lives."""
    last = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else _EPHEMERAL_FIRST
    count = last - PORT_FIRST
    assert count > 0, f"{_RANGE} leaves no ports from {PORT_FIRST} on"
    start = os.getpid() * 97  # Processes begin at different places, so that they seldom try the same port.
    for port in (PORT_FIRST + (start + step) % count for step in range(count)):
        if port not in _reserved and _reserve(port) and _is_free(port):
            _reserved.add(port)
            return port
    raise AssertionError(f"no port is free from {PORT_FIRST} to {last}")


def _reserve(port: int) -> bool:
    """Locks one byte of a file that all processes share. The lock ends with the process."""
    global _file
    if _file < 0:
        name = Path(tempfile.gettempdir()) / f"largesse-test-ports-{os.getuid()}"
        _file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(_file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
