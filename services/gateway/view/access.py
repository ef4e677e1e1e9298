"""Tokens in the gateway's view: who holds them, and what each may do."""

from largesse.core import Folds
from schemas import Record, TokenMade, TokenRevoked
from services.gateway.view.state import EndedTokenRow, State, TokenRow

TOKENS_ENDED_MAX = 1_000
"""As many as can be in force."""


def fold_token(state: State, record: Record) -> None:
    """A token was made. Those that have expired are forgotten, as the sequencer forgets them."""
    body: TokenMade = record.body
    gone = [name for name, row in state.tokens.items() if row.expires_ms is not None and row.expires_ms <= record.time]
    for name in gone:
        _end(state, name, state.tokens[name].expires_ms or record.time, "")
    terms = (body.name, body.user, body.roles, body.sha256, body.expires_ms, body.author)
    state.tokens[body.name] = TokenRow(*terms, record.time)
    state.token_names[body.sha256] = body.name
    state.tokens_made = True


def fold_revoked(state: State, record: Record) -> None:
    """A token was revoked."""
    body: TokenRevoked = record.body
    _end(state, body.name, record.time, body.author)


def _end(state: State, name: str, at_ms: int, by: str) -> None:
    row = state.tokens.pop(name)
    del state.token_names[row.sha256]
    state.tokens_ended.append(EndedTokenRow(row, at_ms, by))
    del state.tokens_ended[:-TOKENS_ENDED_MAX]


ACCESS_FOLDS: Folds[State] = {TokenMade: fold_token, TokenRevoked: fold_revoked}
