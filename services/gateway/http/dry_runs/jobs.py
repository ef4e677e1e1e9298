"""What would become of a job that is submitted now, by the sequencer's own rules and the next round, in a process of
their own. Nothing is sent.
"""

import sys
import time

from largesse.log.codec import decode
from schemas.edge.base import author_of
from schemas.edge.read import Malformed
from services.gateway.answers import Answer
from services.gateway.documents import Document
from services.gateway.follow import Follower
from services.gateway.http.dry_runs.lending import asked_with_bus
from services.gateway.http.problems import malformed

TRIAL = (sys.executable, "-m", "services.replay", "trial")


async def tried(follower: Follower, data: bytes, author: str) -> tuple[Answer, Document]:
    """What the log would answer to a message to `jobs`, and what would follow. Raises Problem, BusError."""
    question: Document = {
        "cell": follower.cell,
        "partition": follower.partition,
        "shards": follower.state.policy.altruism_shards,
        "message": data.decode(),
        "author": author_of(author),
        "now_ms": int(time.time() * 1_000),
    }
    said = await asked_with_bus(follower.bus, question, TRIAL, "what would become of the job")
    if "malformed" in said:
        raise malformed(Malformed(*said["malformed"]))
    found: Document = said["answer"]
    answer = Answer(found["offset"], True, decode(found["verdict"].encode()))
    return answer, {"at": found["at"], **(found["then"] or {})}
