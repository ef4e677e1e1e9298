"""A short name for a spec."""

from largesse.ids import content_hash
from schemas import JobSpec


def digest_of(spec: JobSpec) -> str:
    """Equal for equal specs; its text names every field in order, the same on every Python."""
    return content_hash(repr(spec).encode("ascii", "backslashreplace"))[:32]
