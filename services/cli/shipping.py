"""What is installed beside the code: the examples, and which build this is."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

from services.cli.ending import Wrong

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_PACKAGED = _HERE / "shipped"
"""Where a wheel and the image keep the folder `examples` of a checkout (setup.py, Dockerfile)."""
_COMMIT = _HERE / "commit.txt"
_CORE = "largesse.core"
"""A module that is compiled where cores are, and imports nothing when it is looked for."""


def examples_folder() -> Path:
    """The examples that came with this installation."""
    return _PACKAGED if _PACKAGED.is_dir() else _ROOT / "examples"


def write_examples(folder: str) -> Path:
    """Copies the examples into a new folder. Raises Wrong where it exists, or cannot be written."""
    target = Path(folder).absolute()
    try:
        shutil.copytree(examples_folder(), target, ignore=shutil.ignore_patterns("__pycache__"))
    except FileExistsError:
        raise Wrong(f"{target} is there already: name another folder") from None
    except OSError as error:
        raise Wrong(f"{error.filename}: {error.strerror}") from None
    return target


def build_text() -> str:
    """Commit or release, and whether the cores are compiled: `commit 1a2b3c4d5e6f, cores interpreted`."""
    found = importlib.util.find_spec(_CORE)
    compiled = found is not None and found.origin is not None and not found.origin.endswith(".py")
    return f"{commit_text() or 'release'}, cores {'compiled' if compiled else 'interpreted'}"


def commit_text() -> str:
    """The commit that a wheel or an image was built from, or that is checked out; empty where neither is known."""
    if _COMMIT.is_file():
        return f"commit {_COMMIT.read_text().strip()}"
    if not (_ROOT / ".git").exists():
        return ""
    command = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return f"commit {asked.stdout.strip()}" if asked.returncode == 0 else ""
