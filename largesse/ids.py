"""Record ids, the hash chain, and seeded draws: everything that names or chances is a function of records."""

from hashlib import blake2b, sha256

PREFIX_OF_NOTHING = b"\0" * 32
"""The chain before the first record."""


def chain(prefix: bytes, content: bytes) -> bytes:
    """The prefix after one more accepted record: SHA-256 over the prefix before it and the content as written."""
    return sha256(prefix + content).digest()


def content_hash(content: bytes) -> str:
    """Names a decision record in the closing that used it."""
    return sha256(content).hexdigest()


def log_id(cell: str, seq: int) -> str:
    """The id of a log record."""
    return f"{cell}/{seq}"


def opening_id(cell: str, seq: int, round_number: int, prefix: str) -> str:
    """The id of an opening contains the prefix, so that an answer to an opening that the log lost is recognised."""
    return f"{cell}/{seq}/r{round_number}/{prefix[:32]}"


def decision_id(topic: str, shard: int, of: int, opening: str) -> str:
    """An output is named by the round that it answers: a repeat has the same id and the same bytes."""
    return f"{topic}/{shard}-{of}/{opening}"


def draw(seed: int, round_number: int, purpose: str, name: str) -> int:
    """A stateless draw, uniform over 64 bits: the same question always gets the same answer."""
    text = f"{seed}|{round_number}|{purpose}|{name}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


def shard_of(job: str, shards: int) -> int:
    """Which altruism shard plans a job. The same on every machine and under every hash seed."""
    if shards == 1:
        return 0
    return int.from_bytes(blake2b(job.encode(), digest_size=8).digest(), "big") % shards
