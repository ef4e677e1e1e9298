"""Which processes come from those of an attempt (services/agent/processes.py)."""

import os

from services.agent.processes import Seen, Table, family

AGENT, BESIDE, SHIM, CHILD, GRANDCHILD, DETACHED = os.getpid(), 900_001, 900_002, 900_003, 900_004, 900_005
GONE = 900_010


def process(parent: int, session: int, state: bytes = b"S") -> Seen:
    return Seen(state, parent, session, 100)


def cell(session: int) -> Table:
    """This process and one beside it in `session`; a shim with a child, a grandchild, and one that has lost its parent
    and opened a session of its own from the child's, whose leader has ended."""
    return {
        AGENT: process(1, session),
        BESIDE: process(1, session),
        SHIM: process(AGENT, SHIM),
        CHILD: process(SHIM, CHILD),
        GRANDCHILD: process(CHILD, GONE),
        DETACHED: process(1, GONE),
    }


def test_descendants_and_the_sessions_that_they_opened_are_of_the_family() -> None:
    assert family(cell(os.getsid(0)), [SHIM]) == {SHIM, CHILD, GRANDCHILD, DETACHED}


def test_what_has_ended_is_passed_through_and_not_of_the_family() -> None:
    table = cell(os.getsid(0)) | {CHILD: process(SHIM, CHILD, b"Z")}
    assert family(table, [SHIM]) == {SHIM, GRANDCHILD, DETACHED}


def test_a_session_whose_leader_lives_outside_the_family_is_not_followed() -> None:
    table = cell(os.getsid(0)) | {GONE: process(1, GONE)}
    assert family(table, [SHIM]) == {SHIM, CHILD, GRANDCHILD}


def test_those_beside_this_process_are_spared_where_the_leader_of_their_session_has_ended() -> None:
    """As below a script that has ended: what began in this session and carries a key brings in no other of it."""
    session = os.getsid(0)
    table = {pid: each for pid, each in cell(session).items() if pid != session or pid == AGENT}
    within = table | {CHILD: process(AGENT, session)}
    assert family(within, [CHILD]) == {CHILD, GRANDCHILD, DETACHED}


def test_a_session_outside_this_namespace_of_processes_holds_no_family_together() -> None:
    table = cell(0) | {CHILD: process(AGENT, 0)}
    assert family(table, [CHILD]) == {CHILD, GRANDCHILD, DETACHED}
