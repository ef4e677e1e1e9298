"""`python -m services.cli.kafka_rights_page`: writes docs/kafka-rights.md: who may do what on a Kafka cluster.

With `--check` it writes nothing and exits with 1 where the page is not current.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from largesse.bus.kafka.rights import groups, reads, writes
from largesse.bus.kafka.topic_settings import TOPICS
from schemas.principals import PRINCIPALS, Principal

PAGE = Path(__file__).parents[2] / "docs" / "kafka-rights.md"

_HEAD = """# Rights on Kafka

<!-- Generated from the code by `make docs`. Do not edit. -->

What each principal may do on a [cluster that asks](kafka.md#permissions), and nothing else.
`make topics KAFKA=kafkas://HOST:PORT ACLS=1` sets it; who runs that is a superuser of the cluster, and no principal of
this table. Standbys and shards of a service are its principal. The gateway sees
who takes part in all groups. Whoever reads or writes a topic sees its settings, too.
"""


def kafka_rights_page() -> str:
    """The page, in Markdown."""
    lines = [_HEAD, "## Principals", "", "| principal | is | groups, transactional ids |", "| --- | --- | --- |"]
    lines += [f"| `{each.name}` | {each.about} | {_begins(each)} |" for each in PRINCIPALS]
    lines += ["", "## Topics", "", "| topic | written by | read by |", "| --- | --- | --- |"]
    for topic in TOPICS:
        writers = [each.name for each in PRINCIPALS if topic in writes(each)]
        readers = [each.name for each in PRINCIPALS if topic in reads(each)]
        lines.append(f"| `{topic}` | {_listed(writers)} | {_listed(readers)} |")
    return "\n".join([*lines, ""])


def _begins(principal: Principal) -> str:
    begins = [*groups(principal), *([principal.name] if principal.transactions else [])]
    return ", ".join(f"`{begin}*`" for begin in begins)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "nobody"


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        current = PAGE.read_text(encoding="utf-8") == kafka_rights_page()
        sys.exit(0 if current else f"{PAGE} is not current: run `make docs`")
    PAGE.write_text(kafka_rights_page(), encoding="utf-8")
