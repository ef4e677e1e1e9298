"""A round: what it is decided from, and what its steps have decided so far."""

from schemas import HeldRoom, LocalityWait, Revocation, StageAsk
from services.leftover.core.state import State
from services.leftover.placement.board import Board
from services.leftover.placement.placements import Placement


class Round:
    """One open round: the state, the board and its `table` of nodes. Every step of `decide` reads what those before it
    have decided, and adds its own.

    `asked`: by job, what it asks for, where that has changed since the last round. What is decided: `placements`;
    `held`, nodes whose held room has changed; `revoked`, attempts that are taken back; `delayed`, tasks that begin to
    wait for nodes that they prefer; `wakes_ms`, when other answers may come without another fact, None where they do
    not.
    """

    def __init__(self, state: State, board: Board, now_ms: int) -> None:
        self.state = state
        self.board = board
        self.table = board.node_table
        self.now_ms = now_ms
        self.asked: dict[str, list[StageAsk]] = {}
        self.placements: list[Placement] = []
        self.held: list[HeldRoom] = []
        self.revoked: list[Revocation] = []
        self.delayed: list[LocalityWait] = []
        self.wakes_ms: list[int | None] = []
