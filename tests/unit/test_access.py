"""Tokens as records: what the edge takes, what the sequencer judges, and what the gateway's view keeps."""

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from largesse.log.record_lines import line_of
from schemas import InputRefused, Record, Role, TokenMade, TokenRevoked
from schemas.access import ROLES, TOKENS_MAX, highest, role_text
from schemas.edge.read import Malformed, read_input
from services.admission.core.access import fold_revoked, fold_token
from services.admission.core.judge import judge
from services.admission.core.state import State
from services.gateway import view
from services.gateway.view.state import State as View

DIGEST = "ab" * 32
ADMIN = [{"role": "admin"}]


def document(name="t", user="ann", roles=ADMIN, sha256=DIGEST, **more):
    return {"make": {"name": name, "user": user, "roles": roles, "sha256": sha256, **more}}


def asked(*args, **more):
    return read_input("access", document(*args, **more), "ops")


def digest(number):
    return f"{number:064x}"


class Cell:
    """What the sequencer and the gateway know of tokens, told of the same records."""

    def __init__(self, leaves=()):
        self.admission, self.view, self.seq = State(), View(), 0
        self.admission.leaves = dict.fromkeys(leaves, True)

    def take(self, body, time=0):
        found = judge(self.admission, body, "ops", time)
        if isinstance(found, TokenMade | TokenRevoked):
            self.seq += 1
            record = Record(type(found).__name__, 1, "default", self.seq, 0, time, f"default/{self.seq}", "", found)
            (fold_token if isinstance(found, TokenMade) else fold_revoked)(self.admission, record)
            view.fold(self.view, record)
        return found


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        pytest.param(document(roles=[{"role": "root"}]), "make.roles[0].role: has to be one of", id="unknown role"),
        pytest.param(document(roles=[]), "make.roles: may not be empty", id="no role"),
        pytest.param(document(roles=ADMIN * 17), "make.roles: is too long: at most 16", id="many roles"),
        pytest.param(document(sha256="secret"), "make.sha256: has to match", id="no hash"),
        pytest.param(document(name="-x"), "make.name: may hold no", id="an option for a name"),
        pytest.param(document(name="a\x1b[2Jb"), "make.name: may hold no", id="an escape in a name"),
        pytest.param(document(user="ann\u202e"), "make.user: may hold no characters that cannot be seen", id="bidi"),
        pytest.param(document(user=""), "make.user: may not be empty", id="nobody"),
        pytest.param(
            document(roles=[{"role": "operator", "queues": ["ads"]}]),
            "make.roles[0].queues: are only for the role submitter",
            id="queues of an operator",
        ),
        pytest.param(
            document(roles=[{"role": "submitter", "queues": ["ads//x"]}]), "make.roles[0].queues[0]", id="no path"
        ),
        pytest.param(document(token="lgt_x"), "make.token: unknown field", id="the token itself"),
        pytest.param({**document(), "revoke": {"name": "t"}}, "exactly one of", id="two forms"),
    ],
)
def test_what_is_refused_of_a_token_before_anybody_judges_it(said, problem):
    with pytest.raises(Malformed) as fault:
        read_input("access", said, "ops")

    assert problem in str(fault.value)


def test_a_token_is_kept_as_it_was_asked_for_and_its_queues_stand_in_order_once():
    body = asked(roles=[{"role": "submitter", "queues": ["b", "a/x", "b"]}, {"role": "viewer"}], expires_ms=5)

    assert body == TokenMade("t", "ann", [Role("submitter", ["a/x", "b"]), Role("viewer")], DIGEST, 5, "ops")


def test_the_first_token_has_to_be_an_admins_and_later_ones_need_not():
    cell = Cell()

    refused = cell.take(asked(roles=[{"role": "viewer"}]))
    assert isinstance(refused, InputRefused)
    assert (refused.topic, refused.field) == ("access", "make.roles")
    assert isinstance(cell.take(asked()), TokenMade)
    assert isinstance(cell.take(asked(name="v", sha256=digest(1), roles=[{"role": "viewer"}])), TokenMade)


def test_a_revoked_name_is_free_and_a_cell_that_had_a_token_stays_closed():
    cell = Cell()
    cell.take(asked())
    cell.take(read_input("access", {"revoke": {"name": "t"}}, "ops"))

    assert (cell.view.tokens, cell.view.token_names, cell.view.tokens_made) == ({}, {}, True)
    assert isinstance(cell.take(asked(roles=[{"role": "viewer"}])), TokenMade)


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        pytest.param(asked(sha256=digest(1)), "make.name", '"t" names another token', id="the name is taken"),
        pytest.param(asked(name="u"), "make.sha256", "is that of another token", id="the same secret"),
        pytest.param(asked(name="u", sha256=digest(1), expires_ms=10), "make.expires_ms", "is 10", id="in the past"),
        pytest.param(TokenRevoked("tt", "ops"), "revoke.name", 'token "tt" is not known here', id="unknown"),
        pytest.param(
            asked(name="u", sha256=digest(1), roles=[{"role": "submitter", "queues": ["adz"]}]),
            "make.roles[0].queues",
            'the nearest name is "ads"',
            id="no such queue",
        ),
    ],
)
def test_what_the_sequencer_refuses(body, field, reason):
    cell = Cell(leaves=("ads", "lab/a", "lab/b"))
    cell.take(asked())

    refused = cell.take(body, time=10)

    assert isinstance(refused, InputRefused)
    assert (refused.topic, refused.field, refused.author) == ("access", field, "ops")
    assert reason in refused.reason
    assert list(cell.view.tokens) == ["t"]


def test_a_submitter_may_be_of_an_inner_queue():
    cell = Cell(leaves=("ads", "lab/a", "lab/b"))
    cell.take(asked())

    assert isinstance(
        cell.take(asked(name="u", sha256=digest(1), roles=[{"role": "submitter", "queues": ["lab"]}])), TokenMade
    )


def test_a_cell_has_a_thousand_live_tokens_and_one_more_once_another_has_expired_or_was_revoked():
    cell = Cell()
    cell.take(asked())
    for number in range(1, TOKENS_MAX):
        cell.take(asked(name=f"t{number}", sha256=digest(number), expires_ms=100 if number == 7 else None))
    more = asked(name="more", sha256=digest(TOKENS_MAX))

    refused = cell.take(more, time=99)
    assert isinstance(refused, InputRefused)
    assert f"the cell has {TOKENS_MAX} tokens" in refused.reason
    assert isinstance(cell.take(more, time=100), TokenMade)
    assert "t7" not in cell.view.tokens
    assert "t7" not in cell.admission.tokens
    assert isinstance(cell.take(asked(name="again", sha256=digest(TOKENS_MAX + 1)), time=100), InputRefused)
    cell.take(TokenRevoked("t9", "ops"), time=100)
    assert isinstance(cell.take(asked(name="again", sha256=digest(TOKENS_MAX + 1)), time=100), TokenMade)


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("make"), st.integers(0, 3), st.integers(0, 5), st.one_of(st.none(), st.integers(1, 60))),
        st.tuples(st.just("revoke"), st.integers(0, 3), st.just(0), st.none()),
    ),
    max_size=30,
)


@settings(max_examples=100, deadline=None)
@drawn(MOVES)
def test_sequencer_and_view_have_the_same_tokens_as_a_plain_list_of_them(moves):
    """The plain list: every token ever made, of which those count that were neither revoked nor have expired."""
    cell, plain = Cell(), []
    for at, (what, name, secret, expires) in enumerate(moves):
        live = [each for each in plain if each[2] is None or each[2] > at]
        known = {each[0] for each in plain}
        if what == "revoke":
            found = cell.take(TokenRevoked(f"t{name}", "ops"), time=at)
            assert isinstance(found, TokenRevoked) == (f"t{name}" in known)
            plain = [each for each in plain if each[0] != f"t{name}"]
        else:
            found = cell.take(asked(name=f"t{name}", sha256=digest(secret), expires_ms=expires), time=at)
            taken = any(f"t{name}" == each[0] or digest(secret) == each[1] for each in live)
            may = not taken and (expires is None or expires > at)
            assert isinstance(found, TokenMade) == may
            if may:
                plain = [*live, (f"t{name}", digest(secret), expires)]
        assert [(row.name, row.sha256, row.expires_ms) for row in cell.view.tokens.values()] == plain
        assert list(cell.admission.tokens) == [each[0] for each in plain]
        assert cell.view.token_names == {each[1]: each[0] for each in plain}


def test_what_a_tail_says_of_tokens_has_neither_hash_nor_control_characters():
    made = asked(roles=[{"role": "submitter", "queues": ["a", "b"]}])
    record = Record("TokenMade", 1, "default", 1, 0, 0, "default/1", "", made)

    assert line_of(record) == "t of ann: submitter:a,b (by ops)"


def test_roles_are_ordered_and_written_as_they_are_read():
    assert highest([Role(role) for role in ROLES]) == "admin"
    assert highest([Role("viewer"), Role("submitter", ["a"])]) == "submitter"
    assert role_text(Role("submitter", ["a", "b/c"])) == "submitter:a,b/c"
