"""What is another user's, or another role's, with a good token."""

import pytest

from tests.attacks.gateway import RDL, asks, attacked, said
from tests.attacks.listed import Attack, Target, check_names, ended, named
from tests.http_rig import JOB
from tests.token_cell import request_of

TARGET = Target(
    "The gateway: what is another's",
    "A gateway of a closed cell over HTTP; who asks holds a token. Counted is in `largesse_http_refused_total`.",
)
MINE = {**JOB, "queue": "ads/prod"}
STOP = {"set": {"round_gap_ms": 7}}


@pytest.fixture(scope="module")
def tried():
    with attacked() as found:
        yield found


def anothers(name, method, path, *, token="submitter", **request):
    """It belongs to bob, or names him."""
    return Attack(name, asks(method, path, token, **request), "403 other_user", counted="other_user")


def beyond(name, method, path, *, token, **request):
    """The role does not do."""
    return Attack(name, asks(method, path, token, **request), "403 forbidden", counted="role")


async def by_a_session(cell):
    """A cookie stands for its token, and for no other."""
    own = {"cookie": await cell.sign_in("viewer"), "origin": f"http://127.0.0.1:{cell.served.port}"}
    return said(await cell.ask("POST", "/v1/jobs", body=MINE, **own))


async def out_of_the_queue(cell):
    """A path is a list of names, of which none is `..`: the cell has no such queue."""
    cell.meant += 1
    return said(await cell.ask("POST", "/v1/jobs", "submitter", body={**JOB, "queue": "ads/../lab"}))


ATTACKS = [
    anothers("a job spec with another user's name", "POST", "/v1/jobs", body={**MINE, "user": "bob"}),
    anothers("Largesse-User beside a token", "POST", "/v1/jobs", body=MINE, largesse_user="bob"),
    anothers("the same of an admin", "POST", "/v1/jobs", token="admin", body=MINE, largesse_user="bob"),
    anothers("cancel another's job", "DELETE", "/v1/jobs/bobs"),
    anothers("raise the priority of another's job", "PATCH", "/v1/jobs/bobs", body={"priority": 9}),
    anothers("hold another's job", "PATCH", "/v1/jobs/bobs", body={"hold": True}),
    anothers("take another's job into one's queue", "PATCH", "/v1/jobs/bobs", body={"queue": "ads/prod"}),
    anothers("run another's job again", "POST", "/v1/jobs/bobs/rerun", body={}),
    anothers("output of another's job", "GET", "/v1/jobs/bobs/logs"),
    anothers("output of another's task", "GET", "/v1/tasks/bobs/s/0/logs"),
    anothers("results of another's job", "GET", "/v1/jobs/bobs/results"),
    anothers("a file that another's task left", "GET", "/v1/tasks/bobs/s/0/results?file=x"),
    anothers(
        "a reservation in another's name",
        "POST",
        "/v1/reservations",
        body={"reservation": "r", "rdl": RDL, "user": "bob"},
    ),
    anothers("other terms for another's reservation", "PUT", "/v1/reservations/bobs-room", body={"rdl": RDL}),
    anothers("give another's reservation back", "DELETE", "/v1/reservations/bobs-room"),
    anothers("the same in another's name", "DELETE", "/v1/reservations/bobs-room?user=bob"),
    anothers(
        "a series in another's name",
        "POST",
        "/v1/series",
        body={"series": "night", "rdl": RDL, "every": 3_600, "start_s": 4_000_000_000, "user": "bob"},
    ),
    beyond("a queue beyond the token's", "POST", "/v1/jobs", token="submitter", body={**JOB, "queue": "lab"}),
    beyond("no queue, which is one beyond the token's", "POST", "/v1/jobs", token="submitter", body=JOB),
    beyond(
        "a queue whose name begins as the token's", "POST", "/v1/jobs", token="submitter", body={**JOB, "queue": "ads2"}
    ),
    Attack("a way out of the token's queue", out_of_the_queue, "422 refused:unknown_queue"),
    beyond("a viewer submits", "POST", "/v1/jobs", token="viewer", body=MINE),
    Attack("a viewer's session submits", by_a_session, "403 forbidden", counted="role"),
    beyond("a viewer reads output", "GET", "/v1/jobs/bobs/logs", token="viewer"),
    beyond("a submitter drains a node", "POST", "/v1/nodes/n1/drain", token="submitter", body={}),
    beyond("a submitter abandons a round", "POST", "/v1/rounds/1/abandon", token="submitter"),
    beyond("a submitter skips an input", "POST", "/v1/inputs/jobs/0/skip", token="submitter"),
    beyond("an operator changes policy", "PUT", "/v1/config", token="operator", body=STOP),
    beyond(
        "an operator writes submitters into queues",
        "PUT",
        "/v1/config",
        token="operator",
        body={"queues": {"name": "root"}},
    ),
    beyond("a dry run that is none", "PUT", "/v1/config?dry_run=false", token="operator", body=STOP),
    beyond("a dry run and none", "PUT", "/v1/config?dry_run=true&dry_run=false", token="operator", body=STOP),
    beyond("a dry run otherwise written", "PUT", "/v1/config?dry_run=1", token="operator", body=STOP),
    beyond(
        "an operator makes itself an admin",
        "POST",
        "/v1/tokens",
        token="operator",
        body=request_of("mine", "olga", [{"role": "admin"}]),
    ),
    beyond("an operator revokes the admin's token", "DELETE", "/v1/tokens/admin", token="operator"),
    beyond("an operator lists tokens", "GET", "/v1/tokens", token="operator"),
]
check_names(ATTACKS)


@pytest.mark.parametrize("attack", ATTACKS, ids=named)
def test_is_refused(tried, attack):
    assert ended(tried(attack)) == ended(attack)
