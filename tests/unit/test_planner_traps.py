"""Mistakes that planners of reservations are known to make. Each test fails for a planner that makes one."""

import pytest

from tests.plan_rig import accepted, ask, atom, faults, gang, group, held, window

AGENTS = pytest.mark.parametrize("agent", ["gree", "gree-l", "early", "default"])
CAPACITY = {"x": 10}


def served(answer, *requests, capacity=None, horizon=6_000):
    """Whether all were accepted, with plans that the judge finds nothing wrong with."""
    named = {f"r{i}": rdl for i, rdl in enumerate(requests)}
    return all(accepted(answer)) and faults(named, held(answer), capacity or CAPACITY, horizon) == []


@AGENTS
def test_branches_of_an_all_see_the_room_that_the_others_take(agent):
    rdl = window(0, 600, group("all", gang(6, 300), gang(6, 300)))

    assert served(ask(rdl, agent=agent), rdl)


@AGENTS
def test_leases_of_one_atom_see_each_other(agent):
    rdl = window(0, 600, atom(12, 12 * 300, lease=300))

    assert served(ask(rdl, agent=agent), rdl)


@AGENTS
def test_gangs_are_counted_by_the_scarcest_resource_and_not_by_one_of_them(agent):
    capacity = {"cpu": 100, "memory": 10}
    rdl = window(0, 300, gang(6, 300, cpu=1, memory=2))

    assert accepted(ask(rdl, agent=agent, capacity=capacity)) == [False]


@AGENTS
def test_gangs_that_fit_in_every_resource_fit_though_each_asks_most_of_another(agent):
    capacity = {"cpu": 10, "memory": 10}
    lean = window(0, 300, gang(1, 300, cpu=9, memory=1))
    wide = window(0, 300, gang(1, 300, cpu=1, memory=9))

    assert served(ask(lean, wide, agent=agent, capacity=capacity), lean, wide, capacity=capacity)


@AGENTS
@pytest.mark.parametrize("fits", [0, 1, 2])
def test_any_tries_every_branch(agent, fits):
    branches = [gang(20, 60)] * 3
    branches[fits] = gang(10, 60)
    rdl = window(0, 600, group("any", *branches))

    answer = ask(rdl, agent=agent)

    assert served(answer, rdl)
    assert {lease["atom"] for lease in answer["results"][0]["leases"]} == {str(fits)}


@AGENTS
def test_any_inside_an_order_takes_the_branch_that_leaves_time_for_the_next(agent):
    light_and_slow, heavy_and_fast = gang(1, 540), gang(10, 120)
    rdl = window(0, 600, group("order", gang(1, 60), group("any", light_and_slow, heavy_and_fast), gang(1, 120)))

    answer = ask(rdl, agent=agent)

    assert served(answer, rdl)


@AGENTS
@pytest.mark.parametrize("blocked", [(300, 420), (240, 300), (360, 480), (0, 120), (480, 600)])
def test_no_gap_tries_other_starts_where_the_first_leaves_a_gap(agent, blocked):
    other = window(*blocked, gang(10, blocked[1] - blocked[0]))
    rdl = window(0, 600, group("order_no_gap", gang(6, 120), gang(8, 120)))

    assert served(ask(other, rdl, agent=agent), other, rdl)


@AGENTS
def test_no_gap_goes_narrower_where_the_widest_leaves_a_gap(agent):
    other = window(0, 600, gang(5, 600))
    rdl = window(0, 600, group("order_no_gap", atom(10, 1200), atom(10, 1200)))

    assert served(ask(other, rdl, agent=agent), other, rdl)


@AGENTS
def test_times_off_the_grid_round_inwards_and_leases_up(agent):
    rdl = window(61, 359, atom(1, 90, lease=61))

    answer = ask(rdl, agent=agent)

    assert served(answer, rdl)
    assert all(lease["from"] >= 120 and lease["to"] <= 300 for lease in answer["results"][0]["leases"])


@AGENTS
def test_a_window_without_a_whole_step_for_the_lease_is_rejected(agent):
    answer = ask(window(61, 179, gang(1, 60)), agent=agent)

    assert accepted(answer) == [False]
    assert "too short" in answer["results"][0]["reason"]


@AGENTS
def test_an_update_does_not_count_what_it_replaces(agent):
    wide = window(0, 300, gang(8, 300))
    operations = [{"op": op, "id": "mine", "user": "ann", "rdl": wide} for op in ("submit", "update", "update")]

    assert accepted(ask(*operations, agent=agent)) == [True, True, True]


@AGENTS
def test_an_update_does_not_count_what_it_replaces_against_the_user_limit(agent):
    quota = {"max_instant_share": 0.8, "max_average_share": 0.8, "window_s": 300}
    rdl = window(0, 300, gang(8, 300))
    operations = [{"op": op, "id": "mine", "user": "ann", "rdl": rdl} for op in ("submit", "update")]

    assert accepted(ask(*operations, agent=agent, user_quota=quota)) == [True, True]


@AGENTS
@pytest.mark.parametrize("end", [240, 300, 360])
def test_a_block_is_found_that_begins_exactly_where_another_ends(agent, end):
    other = window(0, end, gang(10, end))
    rdl = window(0, end + 300, gang(10, 300))

    assert served(ask(other, rdl, agent=agent), other, rdl)


@AGENTS
@pytest.mark.parametrize("begin", [240, 300, 360])
def test_a_block_is_found_that_ends_exactly_where_another_begins(agent, begin):
    other = window(begin, begin + 300, gang(10, 300))
    rdl = window(begin - 180, begin + 300, gang(10, 180))

    assert served(ask(other, rdl, agent=agent), other, rdl)


@AGENTS
def test_a_lease_goes_on_for_longer_than_the_least_where_two_do_not_fit(agent):
    rdl = window(0, 480, atom(1, 480, lease=300))

    assert served(ask(rdl, agent=agent), rdl)


@AGENTS
def test_an_any_of_thirty_alls_of_thirty_is_answered_by_its_atoms_and_not_by_their_combinations(agent):
    hopeless = group("all", *[gang(1, 60)] * 29, gang(10, 600))
    rdl = window(0, 600, group("any", *[hopeless] * 30))

    assert accepted(ask(rdl, agent=agent)) == [False]  # Trying combinations would not end.


@AGENTS
def test_of_thirty_alls_of_thirty_the_one_that_fits_is_found(agent):
    branches = [group("all", *[gang(1, 60)] * 29, gang(11, 600))] * 29
    rdl = window(0, 1_200, group("any", *branches, group("all", *[gang(1, 60)] * 30)))

    assert served(ask(rdl, agent=agent), rdl)


def test_the_default_moves_what_it_has_accepted_and_still_meets_it():
    first = window(0, 600, gang(6, 300))
    second = window(0, 300, gang(10, 300))

    assert accepted(ask(first, second, agent="early")) == [True, False]
    answer = ask(first, second)

    assert served(answer, first, second)
    assert answer["results"][1]["moved"] == ["r0"]
    assert answer["final_leases"]["r0"] != answer["results"][0]["leases"]


def test_the_default_moves_as_many_as_it_takes_where_neither_one_nor_two_are_enough():
    minutes = [(1, 5, 4, 1), (1, 5, 1, 3), (1, 5, 1, 3), (0, 3, 1, 3)]  # Begin and end of a window, units, length.
    asked = [window(60 * begin, 60 * end, gang(units, 60 * length)) for begin, end, units, length in minutes]
    answer = ask(*asked, capacity={"x": 4}, horizon=300)
    assert answer["results"][3]["moved"] == ["r0", "r1", "r2"]
    requests = {f"r{i}": each for i, each in enumerate(asked)}
    assert faults(requests, held(answer), {"x": 4}, 300) == []


def test_the_late_form_is_as_late_as_it_fits_and_the_early_one_as_soon():
    rdl = window(0, 600, gang(5, 120))

    assert ask(rdl, agent="gree")["results"][0]["leases"] == [{"atom": "0", "from": 480, "to": 600, "n": 5}]
    assert ask(rdl, agent="early")["results"][0]["leases"] == [{"atom": "0", "from": 0, "to": 120, "n": 5}]


def test_the_flat_form_spreads_work_over_its_window():
    answer = ask(window(0, 600, atom(10, 1200)), agent="gree-l")

    assert answer["results"][0]["leases"] == [{"atom": "0", "from": 0, "to": 600, "n": 2}]


@pytest.mark.parametrize(("agent", "kind"), [("gree", "late"), ("gree-l", "flat"), ("early", "early"), ("?", "flat")])
def test_an_answer_names_the_form_that_was_used(agent, kind):
    answer = ask(window(0, 600, gang(5, 120)), agent=agent)

    assert answer["agent_kind"] == kind
    assert answer["results"][0]["form"] == kind


def test_what_finds_no_room_is_offered_the_nearest_window_that_has_it():
    other = window(600, 1_200, gang(10, 600))

    late = ask(other, window(600, 1_020, gang(5, 300)))["results"][1]
    early = ask(other, window(780, 1_200, gang(5, 300)))["results"][1]

    assert late["offer"] == {"from": 300, "to": 1_020}
    assert early["offer"] == {"from": 780, "to": 1_500}


def test_a_rejection_names_the_atom_that_found_no_room():
    other = window(0, 600, gang(5, 600))
    result = ask(other, window(0, 600, group("all", gang(1, 60), gang(6, 60))), agent="gree")["results"][1]

    assert result["reason"] == "no_room: atom 1 finds no room in its window beside what is promised"


def test_a_window_that_is_too_short_is_offered_one_that_is_not():
    result = ask(window(600, 900, gang(5, 600)))["results"][0]

    assert not result["accepted"]
    assert result["offer"] == {"from": 300, "to": 900} or result["offer"] == {"from": 600, "to": 1_200}


def test_a_gang_larger_than_the_cell_is_offered_a_size_that_fits():
    result = ask(window(0, 600, gang(20, 60)))["results"][0]

    assert 450 <= result["offer"]["size_permille"] <= 549


def test_nothing_is_planned_before_now():
    rdl = window(0, 1_200, gang(5, 600))
    late, early = ask(rdl, now=300, agent="early"), ask(rdl, now=601)["results"][0]

    assert late["results"][0]["leases"] == [{"atom": "0", "from": 300, "to": 900, "n": 5}]
    assert early["offer"] == {"from": 660, "to": 1_260}


def test_an_offer_for_an_update_does_not_count_what_it_would_replace():
    first = {"op": "submit", "id": "mine", "user": "ann", "rdl": window(0, 6_000, gang(8, 6_000))}
    second = {**first, "op": "update", "rdl": window(0, 300, gang(8, 600))}

    assert ask(first, second)["results"][1]["offer"] == {"from": 0, "to": 600}


def test_what_finds_no_room_in_any_window_is_offered_a_size():
    other = window(0, 6_000, gang(5, 6_000))
    result = ask(other, window(0, 600, gang(10, 600)))["results"][1]

    assert 450 <= result["offer"]["size_permille"] <= 599


@pytest.mark.parametrize("op", ["update", "delete"])
def test_only_its_owner_may_change_a_reservation(op):
    rdl = window(0, 600, gang(5, 120))
    change = {"op": op, "id": "r0", "user": "bob", "rdl": rdl}

    result = ask(rdl, change)["results"][1]

    assert result["reason"].startswith("not_owner")


def test_an_unknown_reservation_cannot_be_changed_and_a_known_one_not_be_made_again():
    rdl = window(0, 600, gang(5, 120))
    again = {"op": "submit", "id": "r0", "user": "ann", "rdl": rdl}
    unknown = {"op": "delete", "id": "no", "user": "ann"}

    reasons = [result["reason"].split(":")[0] for result in ask(rdl, again, unknown)["results"][1:]]

    assert reasons == ["name_taken", "unknown"]


def test_what_exists_takes_room_and_can_be_given_back():
    existing = [{"id": "old", "user": "ann", "profile": [{"from": 0, "to": 600, "usage": {"x": 8}}]}]
    rdl = window(0, 600, gang(5, 600))
    delete = {"op": "delete", "id": "old", "user": "ann"}
    again = {"op": "submit", "id": "again", "user": "ann", "rdl": rdl}

    assert accepted(ask(rdl, delete, again, existing=existing)) == [False, True, True]


def test_a_users_plan_stays_within_its_share_at_any_moment():
    quota = {"max_instant_share": 0.3, "max_average_share": 1, "window_s": 600}
    first, second = window(0, 600, atom(10, 1_200)), window(0, 600, atom(10, 1_200))

    assert accepted(ask(first, second, user_quota=quota)) == [True, False]


def test_a_users_plan_stays_within_its_average_over_every_window():
    quota = {"max_average_share": 0.5, "window_s": 600}
    first, second = window(0, 300, gang(10, 300)), window(480, 600, gang(1, 60))
    later = window(480, 960, gang(1, 60))

    assert accepted(ask(first, second, agent="early", user_quota=quota)) == [True, False]
    assert accepted(ask(first, later, agent="gree", user_quota=quota)) == [True, True]
