"""Rules by which a stage retries kinds of failures, as people write them."""

from decimal import Decimal
from typing import Annotated, Final

from pydantic import Field, WithJsonSchema

from schemas.edge.base import DurationMs, Input, Malformed, shown
from schemas.jobs import RetryRule
from schemas.retries import EXIT_CODE_MAX, EXIT_CODES, KINDS
from schemas.wording import nearest

RULES_MAX: Final = 16
LIMIT_MAX: Final = 1_000
FACTOR_MAX: Final = 100

Factor = Annotated[
    object,  # Read by `_permille`: pydantic would take a number with a point for a float.
    WithJsonSchema({"type": "number", "minimum": 1, "maximum": FACTOR_MAX}),
]


class RetryInput(Input):
    """Failures of these kinds are retried up to `limit` times for each task. Without `backoff_ms` the pause is that of
    the policy; it grows by `backoff_factor` with each retry, up to `backoff_max_ms`.
    """

    on: Annotated[list[str], Field(min_length=1, max_length=RULES_MAX)]
    limit: Annotated[int, Field(ge=0, le=LIMIT_MAX)]
    backoff_ms: DurationMs | None = None
    backoff_factor: Factor = 2
    backoff_max_ms: DurationMs | None = None


def rules_of(rules: list[RetryInput]) -> list[RetryRule]:
    """As a stage keeps them. Raises Malformed."""
    kept = []
    for i, rule in enumerate(rules):
        try:
            kept.append(_rule(rule))
        except Malformed as fault:
            raise fault.under(f"retry[{i}]") from None
    return kept


def _rule(rule: RetryInput) -> RetryRule:
    on = [_kind(kind, f"on[{k}]") for k, kind in enumerate(rule.on)]
    if rule.backoff_max_ms is not None and rule.backoff_max_ms < (rule.backoff_ms or 0):
        raise Malformed("backoff_max_ms", f'is {rule.backoff_max_ms}, less than "backoff_ms": {rule.backoff_ms}')
    return RetryRule(on, rule.limit, rule.backoff_ms, _permille(rule.backoff_factor), rule.backoff_max_ms)


def _kind(kind: str, field: str) -> str:
    if kind in KINDS:
        return kind
    match = EXIT_CODES.fullmatch(kind)
    if match is None:
        close = nearest(kind, KINDS)
        known = f'did you mean "{close}"?' if close else f"there are {', '.join(KINDS)} and exit_code:1-9"
        raise Malformed(field, f"{shown(kind)} is no kind of failure; {known}")
    first, last = int(match[1]), int(match[2] or match[1])
    if not 1 <= first <= last <= EXIT_CODE_MAX:
        raise Malformed(field, f"{shown(kind)} has to name exit codes from 1 to {EXIT_CODE_MAX}, the lower one first")
    return f"exit_code:{first}" if first == last else f"exit_code:{first}-{last}"


def _permille(factor: object) -> int:
    if isinstance(factor, bool) or not isinstance(factor, int | Decimal):
        raise Malformed("backoff_factor", f"has to be a number like 2 or 1.5, is {shown(factor)}")
    if not 1 <= factor <= FACTOR_MAX or factor * 1_000 % 1:
        raise Malformed("backoff_factor", f"has to be from 1 to {FACTOR_MAX} with 3 digits at most, is {shown(factor)}")
    return int(factor * 1_000)
