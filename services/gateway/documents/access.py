"""What the gateway says of tokens. Their text is nowhere kept."""

from schemas.access import role_text
from services.gateway.documents import Document
from services.gateway.view.state import EndedTokenRow, State, TokenRow


def token_document(row: TokenRow, now_ms: int) -> Document:
    """A token as it is shown."""
    return {
        "name": row.name,
        "user": row.user,
        "roles": [role_text(each) for each in row.roles],
        "made_ms": row.made_ms,
        "author": row.author,
        "expires_ms": row.expires_ms,
        "state": "expired" if row.expires_ms is not None and row.expires_ms <= now_ms else "live",
    }


def token_documents(state: State, now_ms: int, *, ended: bool = False) -> list[Document]:
    """Tokens in the order in which they were made. `ended`: before them those that have ended, in the order of their
    ends."""
    found = [_ended_document(row, now_ms) for row in state.tokens_ended] if ended else []
    return [*found, *(token_document(row, now_ms) for row in state.tokens.values())]


def _ended_document(row: EndedTokenRow, now_ms: int) -> Document:
    said = token_document(row.token, now_ms)
    return said | {"state": "revoked" if row.by else "expired", "ended_ms": row.ended_ms, "ended_by": row.by or None}
