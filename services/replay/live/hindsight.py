"""What a running cell would have done otherwise: a what-if over its log, as far as it goes, for who asks a gateway.

The process reads the log itself, at the least priority there is and within limits, says how far it is by lines of JSON,
and ends with who started it.
"""

import os
import resource
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from json import dumps, loads
from time import monotonic
from typing import BinaryIO

from largesse.archive.state_file import StateFile
from largesse.bus.port import BusError
from largesse.log.codec import Undecodable
from largesse.log.decisions import DecisionGap
from schemas.edge.base import Malformed
from schemas.edge.what_ifs import read_what_if
from services.gateway.documents import Document
from services.replay.source import Hear, NoLog, Source, Step, open_source
from services.replay.whatif.answer import document_of
from services.replay.whatif.run import NotThere, Question, ask_from

NICE = 19
TOLD_S = 0.5
"""So often is said how far it is."""
PASSES = 2
"""The log is read once for what is in it, and once more while it is decided again."""


def answer(into: BinaryIO, out: BinaryIO) -> None:
    """Answers one question, the first line that comes in; what comes last is the answer, or a problem."""
    asked = loads(into.readline())
    _end_with(into)
    os.nice(NICE)
    limit = asked["memory_bytes"]
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    def say(document: Document) -> None:
        out.write(dumps(document).encode() + b"\n")
        out.flush()

    say(_answered(asked, lambda done, of: say({"progress": {"done": done, "of": of}})))


def _end_with(into: BinaryIO) -> None:
    """Ends this process where who asked goes, or wants no answer any more: its end of the pipe is closed then."""

    def wait() -> None:
        os.read(into.fileno(), 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _answered(asked: Document, tell: Callable[[int, int], None]) -> Document:
    try:
        source = open_source(asked["source"], asked["partition"])
        return {"answer": what_if(source, asked["asked"], asked["seq"], tell, asked.get("archive", ""))}
    except Malformed as fault:
        return _problem(409, "refused:input", str(fault), field=fault.field)
    except NotThere as fault:
        return _problem(404, "unknown_name", str(fault))
    except MemoryError:
        return _problem(503, "effect", f"it needs more than {asked['memory_bytes'] >> 20:,} MiB: {asked['way_out']}")
    except (NoLog, BusError, Undecodable, DecisionGap, OSError) as error:
        return _problem(503, "effect", f"the log cannot be read: {error}")


def _problem(status: int, kind: str, detail: str, **more: str) -> Document:
    return {"problem": {"status": status, "type": f"urn:largesse:{kind}", "detail": detail, **more}}


def what_if(
    source: Source, document: Document, seq: int, tell: Callable[[int, int], None], archive: str = ""
) -> Document:
    """The answer over a log up to record `seq`, as `replay --what-if` gives it. `archive`: a store that may have
    checkpoints of it. Raises Malformed, NotThere, and what reading the log raises.
    """
    said = read_what_if(document)
    question = Question(
        said.values,
        said.queues,
        said.added,
        said.removed,
        said.without_jobs,
        said.without_users,
        said.slower_permille,
        said.from_seq or 0,
        said.from_ms,
        seq if said.to_seq is None else min(seq, said.to_seq),  # The log goes on meanwhile.
        said.to_ms,
    )
    return document_of(ask_from(_watched(source, seq, tell), archive, question), question)


def _watched(source: Source, seq: int, tell: Callable[[int, int], None]) -> Source:
    """The same log; `tell` hears how many records of how many were read in all passes."""
    said_s = monotonic()

    def counted(steps: Iterator[Step]) -> Iterator[Step]:
        nonlocal said_s
        for step in steps:
            yield step
            progress.done += 1
            if (now_s := monotonic()) - said_s >= TOLD_S:
                said_s = now_s
                tell(min(progress.done, progress.of), progress.of)

    progress = _Progress(PASSES * seq)
    behind = source.behind
    if behind is None:
        return replace(source, read=lambda _: counted(source.steps()))

    def read_behind(file: StateFile) -> Callable[[Hear], Iterator[Step]]:
        progress.of = PASSES * max(1, seq - file.order.seq)
        read = behind(file)
        return lambda hear: counted(read(hear))

    return replace(source, read=lambda _: counted(source.steps()), behind=read_behind)


@dataclass(slots=True)
class _Progress:
    """How many records of how many were read."""

    of: int
    done: int = 0
