"""Folders with the results of tasks, where they are on this machine: a gateway knows no more of them than a pattern."""

from pathlib import Path

ENDED = "ended/*"
"""Where an agent keeps ended jobs: on shelves by time, whose numbers it alone knows (gateway's result_folders.py)."""


def folders_here(pattern: str) -> list[str]:
    """The folders of this machine that a pattern of results means; where there are none, that is what is known."""
    top, shelf, rest = pattern.rpartition(f"/{ENDED}/")
    if not shelf:
        top, _, rest = pattern.rpartition("/jobs/")
    below = f"{ENDED}/{rest}" if shelf else f"jobs/{rest}"
    try:
        found = sorted(str(path) for path in Path(top).glob(below) if path.is_dir())
    except (OSError, ValueError, NotImplementedError):  # Not ours to read, or no pattern that this Python knows.
        found = []
    return found or [pattern]
