"""`python -m services.cli.rights_page`: writes docs/rights.md: who may ask for what, at the gateway, at the ports of
services and agents, and over MQTT.

With `--check` it writes nothing and exits with 1 where the page is not current.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from largesse.process.port_rights import CALLERS, MODES, PAGES, is_answered
from schemas.access import ROLES
from services.gateway.access.rights import RIGHTS, Right

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "rights.md"
MQTT_RULES = ROOT / "infra" / "mosquitto" / "largesse.acl"

_HEAD = """# Rights

<!-- Generated from the code by `make docs`. Do not edit. -->

Who may ask for what: at the gateway by role, at the ports of services and agents by certificate, over MQTT by user. On
Kafka each service has [rights of its own](kafka-rights.md). Each line is tried by a test.

# The gateway

Which role each request needs, once the cell has [tokens](security.md#who-may-do-what); before, everybody may do
everything. A role may do what those before it may: {roles}. What is not in the table is refused.

| role | {columns} |
| --- |{dashes}
{matrix}
"""

_PORTS = """# Ports of services and agents

Every process answers at `LARGESSE_METRICS_PORT`, by how it is [set up](security.md#between-gateway-and-agents). Who is
refused gets no further than the handshake.

| who asks | {modes} |
| --- |{dashes}
{rows}

| page | has | answered by |
| --- | --- | --- |
{pages}
"""

_MQTT = """# MQTT

With the rules of `infra/mosquitto`, in the cell `default`. NODE is the user's own name.

| user | may | topic |
| --- | --- | --- |
{rows}
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
    lines = [_head()]
    for role, (title, about) in _ABOUT.items():
        lines += [f"## {title}", "", about, "", "| request | |", "| --- | --- |"]
        lines += [f"| `{_shown(named)}` | {note} |" for named, note in _of(role)]
        lines.append("")
    return "\n".join([*lines, _ports(), _mqtt()])


def _head() -> str:
    """How many requests of each table each role may make."""
    tables = [role for role in _ABOUT if role is not None]
    rows = [
        f"| {_ABOUT[role][0] if role else 'nobody known'} | "
        + " | ".join("yes" if role and ROLES.index(role) >= ROLES.index(least) else "no" for least in tables)
        + " |"
        for role in (None, *ROLES)
    ]
    columns = " | ".join(f"[{least}](#{least})" for least in tables)
    said = _HEAD.replace("{roles}", ", ".join(f"`{role}`" for role in ROLES)).replace("{columns}", columns)
    return said.replace("{dashes}", " --- |" * len(tables)).replace("{matrix}", "\n".join(rows))


def _ports() -> str:
    rows = [
        f"| {how} | " + " | ".join("answered" if is_answered(mode, caller) else "refused" for mode in MODES) + " |"
        for caller, how in CALLERS.items()
    ]
    pages = [
        f"| `{page.path}` | {page.about} | {', '.join(f'`{each}`' for each in page.services) or 'every process'} |"
        for page in PAGES
    ]
    said = _PORTS.replace("{modes}", " | ".join(MODES.values())).replace("{dashes}", " --- |" * len(MODES))
    return said.replace("{rows}", "\n".join(rows)).replace("{pages}", "\n".join(pages))


def _mqtt() -> str:
    """As the broker reads it: patterns are for every user but one that is named."""
    rows, user = [], "NODE"
    for line in MQTT_RULES.read_text(encoding="utf-8").splitlines():
        match line.split():
            case ["user", name]:
                user = name
            case ["pattern", may, topic]:
                rows.append(f"| NODE | {_MAY[may]} | `{topic.replace('%u', 'NODE')}` |")
            case ["topic", may, topic]:
                rows.append(f"| `{user}` | {_MAY[may]} | `{topic}` |")
    return _MQTT.replace("{rows}", "\n".join(rows))


_MAY = {"read": "hear", "write": "say", "readwrite": "say and hear"}


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
