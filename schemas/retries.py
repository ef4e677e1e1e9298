"""Which rule of a stage's `retry` a failure falls under, and how long its task waits then."""

import re
from collections.abc import Sequence
from typing import Final

from schemas.jobs import RetryRule
from schemas.tasks import Failure

EXIT_CODE_MAX: Final = 255
ANY: Final = ("exit_code", "timeout", "cannot_start", "memory")
"""What `any` stands for: failures that count against `retries`."""
KINDS: Final = (*ANY, "lost", "revoked", "any")
"""What a rule may name, beside `exit_code:CODE` and `exit_code:FIRST-LAST`."""

EXIT_CODES: Final = re.compile(r"exit_code:([0-9]{1,3})(?:-([0-9]{1,3}))?")


def rule_at(rules: Sequence[RetryRule], reason: Failure, exit_code: int | None) -> int | None:
    """The position of the first rule that names the failure; None where none does."""
    for at, rule in enumerate(rules):
        for kind in rule.on:
            if _names(kind, reason, exit_code):
                return at
    return None


def _names(kind: str, reason: Failure, exit_code: int | None) -> bool:
    if kind == reason:
        return True
    if kind == "any":
        return reason in ANY
    if reason != "exit_code" or exit_code is None:
        return False
    match = EXIT_CODES.fullmatch(kind)
    return match is not None and int(match[1]) <= exit_code <= int(match[2] or match[1])


def pause_ms(rule: RetryRule, retry: int, default_ms: int, default_max_ms: int) -> int:
    """How long a task waits before its `retry`-th retry under a rule, from 1. `default_ms`, `default_max_ms`: where the
    rule says nothing.
    """
    wait_ms = default_ms if rule.backoff_ms is None else rule.backoff_ms
    most_ms = max(wait_ms, default_max_ms) if rule.backoff_max_ms is None else rule.backoff_max_ms
    factor = rule.backoff_factor_permille
    for _ in range(retry - 1):
        if factor == 1_000 or not 0 < wait_ms < most_ms:
            break
        wait_ms = -(-wait_ms * factor // 1_000)
    return min(wait_ms, most_ms)
