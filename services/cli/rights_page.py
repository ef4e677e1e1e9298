"""`python -m services.cli.rights_page`: writes docs/rights.md: which role may ask the gateway for what.

With `--check` it writes nothing and exits with 1 where the page is not current.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from schemas.access import ROLES
from services.gateway.access.rights import RIGHTS, Right

PAGE = Path(__file__).parents[2] / "docs" / "rights.md"

_HEAD = """# Rights

<!-- Generated from the code by `make docs`. Do not edit. -->

Which role each request to the gateway needs, once the cell has [tokens](security.md#who-may-do-what). A role may do
what those before it may: {roles}.
"""

_ABOUT = {
    None: ("Everybody", "Without a token."),
    "viewer": ("viewer", "Reads what there is, but not what tasks printed or left."),
    "submitter": ("submitter", "Does what is in the name of its own user, in its queues; others are for an operator."),
    "operator": ("operator", "Acts for every user, in every queue, and keeps the cell running."),
    "admin": ("admin", "Changes queues, policy, and who may do what."),
}  # fmt: skip


def rights_page() -> str:
    """The page, in Markdown."""
    lines = [_HEAD.replace("{roles}", ", ".join(f"`{role}`" for role in ROLES))]
    for role, (title, about) in _ABOUT.items():
        lines += [f"## {title}", "", about, "", "| request | |", "| --- | --- |"]
        lines += [f"| `{_shown(named)}` | {note} |" for named, note in _of(role)]
        lines.append("")
    return "\n".join(lines)


def _of(role: str | None) -> Iterator[tuple[str, str]]:
    for named, right in RIGHTS.items():
        if right.role == role:
            yield named, _note(right)
        if right.tries == role and role is not None:
            yield f"{named}?dry_run=true", "changes nothing"


def _note(right: Right) -> str:
    if right.local:
        return "from this machine itself without a token"
    return "its user's own" if right.own else ""


def _shown(named: str) -> str:
    return named.replace(":path}", "}")


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        current = PAGE.read_text(encoding="utf-8") == rights_page()
        sys.exit(0 if current else f"{PAGE} is not current: run `make docs`")
    PAGE.write_text(rights_page(), encoding="utf-8")
