"""Tokens as the sequencer knows them: which may be made, and which can be revoked."""

from largesse.lifecycle.queue_rules import listed
from schemas import InputRefused, Record, TokenMade, TokenRevoked
from schemas.access import TOKENS_MAX, highest
from schemas.queue_tree import is_below
from schemas.wording import nearest
from services.admission.core.state import State, TokenKnown


# ---------------------------------------------------------------- inputs
def judge_token(state: State, body: TokenMade, author: str, time: int) -> TokenMade | InputRefused:
    """A new token. The first one closes the cell to everybody else, so it has to be one that can make others."""
    live = {name: known for name, known in state.tokens.items() if _is_live(known, time)}
    if body.name in live:
        return _refused(f'"{body.name}" names another token; revoke it, or choose a new name', "make.name", author)
    if any(known.sha256 == body.sha256 for known in live.values()):
        return _refused("is that of another token; draw a new one", "make.sha256", author)
    if body.expires_ms is not None and body.expires_ms <= time:
        return _refused(f"is {body.expires_ms}, and it is {time} already", "make.expires_ms", author)
    if len(live) >= TOKENS_MAX:
        return _refused(f"the cell has {TOKENS_MAX} tokens; revoke one that is not used", "make.name", author)
    for i, role in enumerate(body.roles):
        for path in role.queues:
            if problem := _unknown_queue(state, path):
                return _refused(problem, f"make.roles[{i}].queues", author)
    if not state.tokens_made and highest(body.roles) != "admin":
        detail = "the first token has to be of the role admin: from then on nobody else can make one"
        return _refused(detail, "make.roles", author)
    return body


def judge_revoked(state: State, body: TokenRevoked, author: str) -> TokenRevoked | InputRefused:
    """A token is to count no more."""
    if body.name in state.tokens:
        return body
    near = nearest(body.name, list(state.tokens))
    hint = f'; did you mean "{near}"?' if near else ""
    return _refused(f'token "{body.name}" is not known here{hint}', "revoke.name", author)


def _unknown_queue(state: State, path: str) -> str:
    """Why no queue of the tree in force is meant; "" where one is, or there is no tree."""
    leaves = list(state.leaves)
    if not leaves or "" in state.leaves or any(is_below(leaf, path) for leaf in leaves):
        return ""
    near = nearest(path, leaves)
    there = f'the nearest name is "{near}"' if near else f"there is {listed(leaves)}"
    return f'queue "{path}" is not in the tree; {there}'


def _is_live(known: TokenKnown, time: int) -> bool:
    return known.expires_ms is None or known.expires_ms > time


def _refused(reason: str, field: str, author: str) -> InputRefused:
    return InputRefused("access", reason, field, 0, "", author)


# ---------------------------------------------------------------- what the log says
def fold_token(state: State, record: Record[TokenMade]) -> None:
    """A token was made. Those that have expired are forgotten."""
    body = record.body
    state.tokens = {name: known for name, known in state.tokens.items() if _is_live(known, record.time)}
    state.tokens[body.name] = TokenKnown(body.sha256, body.expires_ms)
    state.tokens_made = True


def fold_revoked(state: State, record: Record[TokenRevoked]) -> None:
    """A token was revoked."""
    del state.tokens[record.body.name]
