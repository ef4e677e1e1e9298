"""`python -m services.cli.strimzi_resources`: writes Strimzi's topics and users for infra/kubernetes/overlays/strimzi.

Both are made of the tables that `python -m largesse.bus.kafka.topics_admin --acls` goes by. With `--check` it writes
nothing and exits with 1 where a file is not current.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from largesse.bus.kafka.rights import Rule, rules
from largesse.bus.kafka.topic_settings import REPLICAS, TOPICS, partitions_of, settings_of
from schemas.principals import PRINCIPALS, Principal

FOLDER = Path(__file__).parents[2] / "infra" / "kubernetes" / "overlays" / "strimzi"
CLUSTER = "largesse"
CELLS = 1
"""How many cells the topics have room for."""

_HEAD = "# Generated from the code by `make docs`. Do not edit.\n"
_KINDS = {"topic": "topic", "group": "group", "transactional id": "transactionalId"}


def topics() -> str:
    """Every topic, with three copies, in YAML."""
    return _HEAD + "---\n".join("".join(f"{line}\n" for line in _topic(name)) for name in TOPICS)


def users() -> str:
    """Every principal with its rights, in YAML."""
    return _HEAD + "---\n".join("".join(f"{line}\n" for line in _user(each)) for each in PRINCIPALS)


def _topic(name: str) -> Iterator[str]:
    yield from _resource("KafkaTopic", name)
    yield f"  partitions: {partitions_of(name, CELLS)}"
    yield f"  replicas: {REPLICAS}"
    yield "  config:"
    for key, value in sorted(settings_of(TOPICS[name], REPLICAS).items()):
        yield f'    {key}: "{value}"'


def _user(principal: Principal) -> Iterator[str]:
    yield from _resource("KafkaUser", principal.name)
    yield "  authentication: {type: scram-sha-512}"
    yield "  authorization:"
    yield "    type: simple"
    yield "    acls:"
    together: dict[tuple[str, str, bool], list[Rule]] = {}
    for rule in rules():
        if rule.principal == principal.name:
            together.setdefault((_KINDS[rule.kind], rule.name, rule.begins), []).append(rule)
    for (kind, name, begins), allowed in together.items():
        pattern = "prefix" if begins else "literal"
        yield f"      - resource: {{type: {kind}, name: {name}, patternType: {pattern}}}"
        yield f"        operations: [{', '.join(rule.operation for rule in allowed)}]"


def _resource(kind: str, name: str) -> Iterator[str]:
    yield "apiVersion: kafka.strimzi.io/v1"
    yield f"kind: {kind}"
    yield f"metadata: {{name: {name}, labels: {{strimzi.io/cluster: {CLUSTER}}}}}"
    yield "spec:"


FILES = {"topics.yaml": topics, "users.yaml": users}

if __name__ == "__main__":
    for name, text in FILES.items():
        path = FOLDER / name
        if "--check" not in sys.argv[1:]:
            path.write_text(text(), encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text():
            sys.exit(f"{path} is not current: run `make docs`")
