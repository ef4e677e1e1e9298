"""Tokens in the gateway's view: who holds them, and what each may do."""

from largesse.core import Folds
from schemas import Record, TokenMade, TokenRevoked
from services.gateway.view.state import State, TokenRow


def fold_token(state: State, record: Record) -> None:
    """A token was made. Those that have expired are forgotten, as the sequencer forgets them."""
    body: TokenMade = record.body
    gone = [name for name, row in state.tokens.items() if row.expires_ms is not None and row.expires_ms <= record.time]
    for name in gone:
        _forget(state, name)
    terms = (body.name, body.user, body.roles, body.sha256, body.expires_ms, body.author)
    state.tokens[body.name] = TokenRow(*terms, record.time)
    state.token_names[body.sha256] = body.name
    state.tokens_made = True


def fold_revoked(state: State, record: Record) -> None:
    """A token was revoked."""
    body: TokenRevoked = record.body
    _forget(state, body.name)


def _forget(state: State, name: str) -> None:
    del state.token_names[state.tokens.pop(name).sha256]


ACCESS_FOLDS: Folds[State] = {TokenMade: fold_token, TokenRevoked: fold_revoked}
