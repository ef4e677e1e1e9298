"""What the gateway says of tokens. Their text is nowhere kept."""

from schemas.access import role_text
from services.gateway.documents import Document
from services.gateway.view.state import TokenRow


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
