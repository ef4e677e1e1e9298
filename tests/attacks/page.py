"""`python -m tests.attacks.page`: writes docs/attacks.md: what is tried, how it ends, and what is logged of it.

With `--check` it writes nothing and exits with 1 where the page is not current.
"""

import sys
from types import ModuleType

from tests.attacks import (
    test_anothers,
    test_bus,
    test_commands,
    test_jwts,
    test_kafka,
    test_nodes,
    test_ports,
    test_requests,
    test_secrets,
    test_tasks,
    test_tls,
    test_who_asks,
)
from tests.attacks.listed import Attack
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "attacks.md"
MODULES: tuple[ModuleType, ...] = (
    test_who_asks, test_jwts, test_anothers, test_requests, test_tls, test_ports, test_tasks, test_nodes, test_bus,
    test_kafka, test_commands, test_secrets,
)  # fmt: skip

_HEAD = """# Attacks

<!-- Generated from the tests by `make docs`. Do not edit. -->

What was tried, and came to nothing: {count} ways to get at what is another's, each by a test of its name in
`tests/attacks`. It is tried against the component itself, as it runs in a cell, and the test fails where it ends
otherwise than the table says, or is logged or counted otherwise. [Security](security.md) says what each part relies on.
"""


def attacks_page() -> str:
    """The page, in Markdown."""
    lines = [_HEAD.replace("{count}", f"{sum(len(module.ATTACKS) for module in MODULES)}")]
    for module in MODULES:
        attacks: list[Attack] = module.ATTACKS
        columns = _columns(attacks)
        lines += [f"## {module.TARGET.title}", "", f"{module.TARGET.about}", ""]
        lines += [f"| attack | {' | '.join(columns)} |", "|" + " --- |" * (1 + len(columns))]
        for attack in attacks:
            cells = [_cell(str(getattr(attack, _FIELDS[column]))) for column in columns]
            lines.append(f"| {_cell(attack.name)} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


_FIELDS = {"ends with": "refused", "logged": "logged", "counted": "counted"}


def _columns(attacks: list[Attack]) -> list[str]:
    return [column for column, field in _FIELDS.items() if any(getattr(attack, field) for attack in attacks)]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        current = PAGE.read_text(encoding="utf-8") == attacks_page()
        sys.exit(0 if current else f"{PAGE} is not current: run `make docs`")
    PAGE.write_text(attacks_page(), encoding="utf-8")
