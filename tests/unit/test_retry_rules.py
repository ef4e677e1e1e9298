"""Rules of `retry`: what is read, which rule a failure falls under, how long its task waits, when it has failed."""

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from largesse.lifecycle.dag import graph_of, progress_of
from largesse.lifecycle.job_life import COUNTED, LOST_ATTEMPTS_MAX, backoff_ms, fail
from largesse.lifecycle.state import JobLife
from schemas import Policy
from schemas.edge.base import Malformed
from schemas.edge.job_document import job_document
from schemas.edge.jobs import read_job
from schemas.edge.strict_json import loads
from schemas.jobs import RetryRule
from schemas.retries import ANY, rule_at
from services.admission.core.keys import digest_of
from tests.builders import job
from tests.builders import stage as tasks_of
from tests.gateway_watch import Watched, stage


def read(rules, **more):
    document = {"stage": "s", "tasks": 2, "demand": {"cpu": "1"}, "command": ["x"], "retry": rules, **more}
    return read_job({"job": "j", "stages": [document]}, "")


def test_rules_are_kept_as_they_are_meant():
    rules = loads(
        b'[{"on": ["exit_code:75", "exit_code:1-1", "lost"], "limit": 3, "backoff_ms": 50, "backoff_factor": 1.5}]'
    )
    kept = read(rules).stages[0].retry
    assert kept == [RetryRule(["exit_code:75", "exit_code:1", "lost"], 3, 50, 1_500, None)]
    assert read(job_document(read(rules))["stages"][0]["retry"]) == read(rules)


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({"on": ["exitcode"], "limit": 1}, 'on[0]: "exitcode" is no kind of failure; did you mean "exit_code"?'),
        ({"on": ["zzzz"], "limit": 1}, 'on[0]: "zzzz" is no kind of failure; there are exit_code, timeout'),
        ({"on": ["exit_code:9-1"], "limit": 1}, 'on[0]: "exit_code:9-1" has to name exit codes from 1 to 255'),
        ({"on": ["exit_code:0"], "limit": 1}, "on[0]:"),
        ({"on": ["exit_code:256"], "limit": 1}, "on[0]:"),
        ({"on": [], "limit": 1}, "on: may not be empty"),
        ({"on": ["lost"]}, "limit: is missing"),
        ({"on": ["lost"], "limit": -1}, "limit: has to be at least 0"),
        ({"on": ["lost"], "limit": 1, "backoff_factor": 0}, "backoff_factor: has to be from 1 to 100"),
        ({"on": ["lost"], "limit": 1, "backoff_factor": "2"}, "backoff_factor: has to be a number like 2 or 1.5"),
        ({"on": ["lost"], "limit": 1, "backoff_ms": 9, "backoff_max_ms": 8}, "backoff_max_ms: is 8, less than"),
    ],
)
def test_what_is_wrong_with_a_rule(rule, reason):
    with pytest.raises(Malformed) as caught:
        read([{"on": ["any"], "limit": 1}, rule])
    assert str(caught.value).startswith(f"stages[0].retry[1].{reason}")


def test_any_is_what_counts_against_retries():
    assert ANY == COUNTED


def test_specs_without_rules_keep_the_name_that_they_had():
    """As this was computed before the field was there."""
    assert digest_of(job("j", tasks_of(max_failed=1))) == "e46643c3adadf653dd53fa87ae3c4453"
    rules = ([], [RetryRule(["any"], 1)], [RetryRule(["lost"], 1)], [RetryRule(["any"], 2)])
    assert len({digest_of(job("j", tasks_of(retry=each))) for each in rules}) == 4


def test_jobs_that_differ_in_rules_share_no_graph():
    one, other = (job("j", tasks_of(retry=[RetryRule([kind], 1)])) for kind in ("any", "lost"))
    assert graph_of(one) is not graph_of(other)


# ---------------------------------------------------------------- laws, against counting by hand
KINDS = ["exit_code", "exit_code:3", "exit_code:2-4", "timeout", "memory", "lost", "revoked", "any"]
RULES = st.lists(
    st.builds(
        RetryRule,
        st.lists(st.sampled_from(KINDS), min_size=1, max_size=2),
        st.integers(0, 3),
        st.none() | st.integers(0, 500),
        st.sampled_from([1_000, 1_500, 2_000]),
        st.none() | st.integers(500, 2_000),
    ),
    max_size=3,
)
REASONS = ["exit_code", "timeout", "cannot_start", "memory", "lost", "revoked"]
FAILURES = st.lists(st.tuples(st.sampled_from(REASONS), st.sampled_from([None, 1, 2, 3, 5])), max_size=14)
POLICY = Policy()


def named_by(rule, reason, code):
    """Whether a rule names a failure, by the words of docs/jobs.md."""
    codes = {"exit_code": range(256), "exit_code:3": [3], "exit_code:2-4": [2, 3, 4]}
    if reason == "exit_code":
        return any(kind == "exit_code" or kind == "any" or (code in codes.get(kind, [])) for kind in rule.on)
    return reason in rule.on or ("any" in rule.on and reason not in ("lost", "revoked"))


def by_hand(rules, retries, failures):
    """What follows the last of these failures of a task, and the pause, by walking over all of them."""
    kinds = [next((i for i, rule in enumerate(rules) if named_by(rule, *each)), None) for each in failures]
    reason, last = failures[-1][0], kinds[-1]
    if last is not None:
        rule, so_far = rules[last], kinds.count(last)
        first = rule.backoff_ms if rule.backoff_ms is not None else POLICY.retry_backoff_ms * (reason in COUNTED)
        most = rule.backoff_max_ms if rule.backoff_max_ms is not None else max(first, POLICY.retry_backoff_ms_max)
        pause = first
        for _ in range(so_far - 1):
            pause = min(ceil(Fraction(pause) * rule.backoff_factor_permille / 1_000), max(pause, most))
        return so_far <= rule.limit, min(pause, most)
    plain = [each[0] for each, kind in zip(failures, kinds, strict=True) if kind is None]
    if reason in COUNTED:
        counted = sum(each in COUNTED for each in plain)
        return counted <= retries, min(POLICY.retry_backoff_ms_max, POLICY.retry_backoff_ms << (counted - 1))
    if reason == "lost":
        row = 0
        for each, kind in zip(reversed(failures), reversed(kinds), strict=True):
            if kind is not None or each[0] in COUNTED:
                break
            row += each[0] == "lost"
        return row < LOST_ATTEMPTS_MAX, 0
    return True, 0


@given(RULES, st.integers(0, 3), FAILURES, st.booleans())
def test_what_follows_a_failure_is_what_counting_all_of_them_says(rules, retries, failures, gang):
    spec = job("j", tasks_of(tasks=2, retry=rules, retries=retries, gang=gang))
    graph = graph_of(spec)
    life = JobLife(graph, progress_of(graph))
    for count in range(1, len(failures) + 1):
        reason, code = failures[count - 1]
        again, pause_ms = by_hand(rules, retries, failures[:count])
        assert fail(life, 0, 1, count, reason, code) == ("again" if again else "over")
        if not again:
            return
        assert backoff_ms(POLICY, life, 0, 1, reason) == pause_ms


@given(RULES, st.sampled_from(REASONS), st.sampled_from([None, 1, 2, 3, 5]))
def test_the_first_rule_that_names_a_failure_counts(rules, reason, code):
    assert rule_at(rules, reason, code) == next(
        (i for i, rule in enumerate(rules) if named_by(rule, reason, code)), None
    )


# ---------------------------------------------------------------- in a cell
def failing(rules, **more):
    return Watched(cpu=9).submit("j", stage("s", tasks=2, retry=rules, **more)).start("j", "s", count=2)


def test_why_names_the_rule_that_a_pause_comes_from():
    cell = failing([RetryRule(["exit_code"], 3, 90_000)]).fail("j", "s", reason="exit_code", exit_code=75)
    assert cell.why("j") == [("back_off", 1)]
    assert cell.job("j")["why"] == "task s/0 failed (exit_code: retry 1 of 3 for exit_code), and is retried in 90 s"


def test_a_lost_attempt_waits_and_counts_where_a_rule_says_so():
    cell = failing([RetryRule(["lost"], 1, 5_000)]).fail("j", "s", reason="lost")
    assert cell.why("j") == [("back_off", 1)]


def test_a_kind_that_is_not_retried_ends_the_job_at_once():
    cell = failing([RetryRule(["exit_code:2"], 0), RetryRule(["any"], 9)]).fail(
        "j", "s", reason="exit_code", exit_code=2
    )
    assert cell.job("j")["state"] == "failed"
    assert "(retried 0 times at most for exit_code:2)" in cell.job("j")["detail"]
