"""Rules of a Kafka cluster as its authorizer keeps them (ACLs): asked for, made and removed.

Only rules that allow, for every host, and for principals of the table (rights.py) are looked at: what else a cluster
has is somebody else's.
"""

from collections.abc import Iterable, Mapping

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import for_code
from aiokafka.protocol.admin import (
    CreateAclsRequest_v1,
    DeleteAclsRequest_v1,
    DescribeAclsRequest,
)
from aiokafka.protocol.api import Request

from largesse.bus.kafka.rights import Kind, Operation, Rule, compared

_ANY, _ALLOW, _LITERAL, _PREFIXED = 1, 3, 3, 4
_KINDS: Mapping[Kind, int] = {"topic": 2, "group": 3, "transactional id": 5}
_OPERATIONS: Mapping[Operation, int] = {"Read": 3, "Write": 4, "Describe": 8, "DescribeConfigs": 10}
_KIND_OF = {number: kind for kind, number in _KINDS.items()}
_OPERATION_OF = {number: operation for operation, number in _OPERATIONS.items()}
_USER, _ANYWHERE = "User:", "*"


class _Create(Request[CreateAclsRequest_v1]):  # type: ignore[misc]
    """Many rules at once; aiokafka's own makes one."""

    API_KEY = CreateAclsRequest_v1.API_KEY

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = [_entry(rule) for rule in rules]

    def build(self, request_struct_class: type[CreateAclsRequest_v1]) -> CreateAclsRequest_v1:
        return request_struct_class(self._rules)


class _Delete(Request[DeleteAclsRequest_v1]):  # type: ignore[misc]
    """Each rule is a filter that fits it alone."""

    API_KEY = DeleteAclsRequest_v1.API_KEY

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = [_entry(rule) for rule in rules]

    def build(self, request_struct_class: type[DeleteAclsRequest_v1]) -> DeleteAclsRequest_v1:
        return request_struct_class(self._rules)


def _entry(rule: Rule) -> tuple[int, str, int, str, str, int, int]:
    pattern = _PREFIXED if rule.begins else _LITERAL
    who = f"{_USER}{rule.principal}"
    return (_KINDS[rule.kind], rule.name, pattern, who, _ANYWHERE, _OPERATIONS[rule.operation], _ALLOW)


async def rules_there(admin: AIOKafkaAdminClient) -> list[Rule]:
    """The rules that allow something from everywhere. Raises KafkaError."""
    # Asked of any broker: all know all.
    answer = await admin._send_request(DescribeAclsRequest(_ANY, None, _ANY, None, None, _ANY, _ANY))
    if answer.error_code:
        raise for_code(answer.error_code)(answer.error_message)
    found = []
    for kind, name, pattern, entries in answer.resources:
        for who, host, operation, permission in entries:
            known = kind in _KIND_OF and operation in _OPERATION_OF and pattern in (_LITERAL, _PREFIXED)
            if known and permission == _ALLOW and host == _ANYWHERE and who.startswith(_USER):
                rule = (who.removeprefix(_USER), _KIND_OF[kind], name, _OPERATION_OF[operation], pattern == _PREFIXED)
                found.append(Rule(*rule))
    return found


async def put_rights(client: AIOKafkaAdminClient, *, prune: bool, check: bool) -> tuple[list[str], bool]:
    """Makes what the table has and the cluster has not; with `prune` removes what is no longer in the table, with
    `check` only looks. Lines about what was (or is to be) done, and whether all is right now, as far as that was asked.
    Raises KafkaError.
    """
    missing, beyond = compared(await rules_there(client))
    if missing and not check:
        answer = await client._send_to_controller(_Create(missing))
        for (code, message), rule in zip(answer.creation_responses, missing, strict=True):
            if code:
                raise for_code(code)(f"{rule.text}: {message}")
    if beyond and prune and not check:
        answer = await client._send_to_controller(_Delete(beyond))
        for (code, message, _), rule in zip(answer.filter_responses, beyond, strict=True):
            if code:
                raise for_code(code)(f"{rule.text}: {message}")
    lines = [f"right: {rule.text}{': missing' if check else ''}" for rule in missing]
    gone = "removed" if prune and not check else "not in the table: --prune removes it"
    lines += [f"right: {rule.text}: {gone}" for rule in beyond]
    return lines or ["rights: right"], not (check and (missing or beyond))
