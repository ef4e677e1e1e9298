"""What is installed beside the code: the examples, and which build this is."""

import shutil
from pathlib import Path

from largesse.release import are_cores_compiled, commit
from services.cli.ending import Wrong

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_PACKAGED = _HERE / "shipped"
"""Where a wheel and the image keep the folder `examples` of a checkout (setup.py, Dockerfile)."""


def examples_folder() -> Path:
    """The examples that came with this installation."""
    return _PACKAGED if _PACKAGED.is_dir() else _ROOT / "examples"


def write_examples(folder: str) -> Path:
    """Copies the examples into a new folder. Raises Wrong where it exists, or cannot be written."""
    target = Path(folder).absolute()
    try:
        shutil.copytree(examples_folder(), target, ignore=shutil.ignore_patterns("__pycache__"))
    except FileExistsError:
        raise Wrong(f"{target} already exists: name another folder") from None
    except OSError as error:
        raise Wrong(f"{error.filename}: {error.strerror}") from None
    return target


def build_text() -> str:
    """Commit or release, and whether the cores are compiled: `commit 1a2b3c4d5e6f, cores interpreted`."""
    return f"{commit_text() or 'release'}, cores {'compiled' if are_cores_compiled() else 'interpreted'}"


def commit_text() -> str:
    """`commit 1a2b3c4d5e6f`; empty where the commit is not known."""
    found = commit()
    return f"commit {found}" if found else ""
