"""Streams of changes: each event says by kind and name what has changed since the one before it.

Nothing is kept for a single client: when it can take another event, it gets what has changed since its last one, as the
view's `Changes` tell it. So who reads slowly gets fewer and larger events, and never a queue of them.
"""

import asyncio
from collections.abc import AsyncGenerator

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event

from services.gateway.changes import Changed
from services.gateway.documents import Document
from services.gateway.follow import Follower
from services.gateway.http.problems import dumped
from services.gateway.view.state import State

STREAMS_MAX = 500

GAP_MS_MIN, GAP_MS, GAP_MS_MAX = 100, 500, 10_000
"""Least time between two events of a stream: the shortest, the usual and the longest that can be asked for."""

BEAT_S = 15.0
"""After so long without an event a comment is sent, so that clients see that the stream is alive."""


def changes_document(state: State, asked: int | None, changed: Changed) -> Document:
    """One event. `asked`: the record behind which it was to begin; None: none was named."""
    told: Document = {kind: {"count": count, "names": names} for kind, (count, names) in changed.names.items()}
    if changed.reasons:
        told.setdefault("jobs", {"count": 0, "names": []})["reasons"] = True
    told |= dict.fromkeys(changed.kinds, True)
    return {
        "seq": state.seq,
        "round": state.round,
        "time_ms": state.time,
        "since_seq": asked,
        "all": changed.since is None,
        "changed": told,
    }


def _until_next(now_s: float, gap_s: float) -> float:
    """Seconds to the next moment at which all streams with this gap tell of changes, half a gap at least: so their
    clients ask for the same documents at the same time."""
    if not gap_s:
        return 0
    return (now_s // gap_s + (2 if now_s % gap_s > gap_s / 2 else 1)) * gap_s - now_s


class ChangeStreams:
    """All streams of one gateway. `encodings`: events encoded so far; streams that wait for the same one share it."""

    def __init__(self, follower: Follower) -> None:
        self.encodings = 0
        self._follower = follower
        self._last: tuple[int | None, int, bytes] = None, -1, b""

    async def events(self, after: int | None, gap_s: float, most: int | None = None) -> AsyncGenerator[bytes, None]:
        """Server-sent events of type `changes`, each with the seq up to which it tells as its id. `after`: the record
        up to which the client knows all; None: it knows nothing, and is told first where the log stands. `most`: so
        many, then it ends.
        """
        follower, told = self._follower, after
        while not follower.stop.is_set():
            if follower.state.seq != told:
                event, told = self._event(told), follower.state.seq
                yield event
                if most is not None and (most := most - 1) == 0:
                    return
                await follower.pause(_until_next(asyncio.get_running_loop().time(), gap_s))
            elif not await follower.changed(BEAT_S):
                yield KEEPALIVE_COMMENT

    def _event(self, told: int | None) -> bytes:
        state = self._follower.state
        if self._last[:2] != (told, state.seq):
            changed = self._follower.changes.since(-1 if told is None else told)
            data = dumped(changes_document(state, told, changed)).decode()
            self._last = told, state.seq, format_sse_event(data_str=data, event="changes", id=str(state.seq))
            self.encodings += 1
        return self._last[2]
