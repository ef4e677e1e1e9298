"""Which release this is (pyproject.toml says the same), and which build of it."""

from functools import cache
from pathlib import Path

VERSION = "0.1.0"

_ROOT = Path(__file__).parents[1]
_COMMIT = _ROOT / "services" / "cli" / "commit.txt"
"""Written into wheels (setup.py) and the image (Dockerfile)."""
_CORE = "largesse.ids"
"""A module that is compiled where cores are, and imports nothing when it is looked for."""


def are_cores_compiled() -> bool:
    """Whether the cores that would be imported are compiled."""
    from importlib.util import find_spec

    found = find_spec(_CORE)
    return found is not None and found.origin is not None and not found.origin.endswith(".py")


@cache
def commit() -> str:
    """The commit that a wheel or an image was built from, or that is checked out; empty where neither is known."""
    import subprocess  # Most commands need it for nothing else.

    if _COMMIT.is_file():
        return _COMMIT.read_text().strip()
    if not (_ROOT / ".git").exists():
        return ""
    command = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""
