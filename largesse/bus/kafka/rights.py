"""What each principal may do on a Kafka cluster: made of the table of topics, and what a cluster has otherwise.

Nothing is allowed that stands not here. Who makes topics and sets rights is no principal of this table, but one of the
cluster's superusers.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from largesse.bus.kafka.topic_settings import DEALT, TOPICS
from schemas.principals import BY_PRINCIPAL, PRINCIPALS, Principal

Kind = Literal["topic", "group", "transactional id"]
Operation = Literal["Read", "Write", "Describe", "DescribeConfigs"]

GROUPS = "largesse."
"""How the names of our groups begin."""


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """That a principal may do something with a resource. `begins`: with all whose name begins so."""

    principal: str
    kind: Kind
    name: str
    operation: Operation
    begins: bool = False

    @property
    def text(self) -> str:
        """In words."""
        return f"{self.principal} may {self.operation} {self.kind} {self.name}{'*' if self.begins else ''}"


def reads(principal: Principal) -> list[str]:
    """Topics that it reads."""
    return [topic.name for topic in TOPICS.values() if principal.party in topic.readers]


def writes(principal: Principal) -> list[str]:
    """Topics that it writes to."""
    return [topic.name for topic in TOPICS.values() if principal.party in topic.writers]


def groups(principal: Principal) -> list[str]:
    """How the groups begin that it takes part in: one for each cell, and one in which cells are dealt."""
    return [group_of(principal.name, "")] if principal.party in DEALT else []


def group_of(service: str, cell: str) -> str:
    """The group in which the instances of a service of one cell are dealt shards."""
    return f"{GROUPS}{service}.{cell}"


def rules() -> list[Rule]:
    """All that is allowed."""
    return sorted(rule for principal in PRINCIPALS for rule in _rules_of(principal))


def _rules_of(principal: Principal) -> Iterator[Rule]:
    for name in dict.fromkeys((*reads(principal), *writes(principal))):
        # Whoever uses a topic first looks whether its settings could lose what lies there.
        yield Rule(principal.name, "topic", name, "DescribeConfigs")
    for name in reads(principal):
        yield Rule(principal.name, "topic", name, "Read")
    for name in writes(principal):
        yield Rule(principal.name, "topic", name, "Write")
    for begin in groups(principal):
        yield Rule(principal.name, "group", begin, "Read", begins=True)
    if principal.party == "gateway":
        yield Rule(principal.name, "group", GROUPS, "Describe", begins=True)  # It tells who stands by.
    if principal.transactions:
        yield Rule(principal.name, "transactional id", principal.name, "Write", begins=True)


def compared(found: Iterable[Rule]) -> tuple[list[Rule], list[Rule]]:
    """What is missing of the table, and what is there beyond it for principals of the table."""
    there = dict.fromkeys(rule for rule in found if rule.principal in BY_PRINCIPAL)
    wanted = dict.fromkeys(rules())
    return [rule for rule in wanted if rule not in there], sorted(rule for rule in there if rule not in wanted)
