"""Jobs of a live cell that name a series, whose occurrences its planner requests by itself."""

import json

from tests.live.up_jobs import PLANNED
from tests.live.up_process import eventually, up

WINDOW = "window(+5s, +30m, atom(b='1 cpu', g=1, h=1, l=600s, w=600s))"


def job(name, reservation):
    stage = {"stage": "s", "tasks": 1, "demand": {"cpu": "1", "memory": "32Mi"}, "command": ["true"]}
    return json.dumps({"job": name, "user": "ann", "reservation": reservation, "stages": [stage]})


def test_a_job_that_names_a_series_is_bound_to_its_next_occurrence_and_runs_under_it(tmp_path):
    (tmp_path / "cluster.json").write_text(json.dumps(PLANNED))
    (tmp_path / "night.rdl").write_text(WINDOW)
    with up(tmp_path / "data", "--cluster", tmp_path / "cluster.json") as cell:
        terms = tmp_path / "night.rdl"
        said = cell.ask("reserve", "submit", "nightly", terms, "--every", "1d", LARGESSE_USER="ann")
        assert said.code == 0, said.err

        def accepted():
            rows = cell.ask("reserve", "list", "--json").json
            return [
                row["reservation"] for row in rows if row["state"] == "accepted" and row["reservation"] != "nightly"
            ]

        first = min(eventually(accepted))
        said = cell.ask("submit", "-", "--watch", stdin=job("night", "nightly"))
        assert f"night is bound to {first}\n" in said.err
        assert said.code == 0, said.err
        assert cell.ask("get", "job", "night", "--json").json["reservation"] == first

        assert cell.ask("reserve", "delete", "nightly", LARGESSE_USER="ann").code == 0
        said = cell.ask("submit", "-", stdin=job("late", "nightly"))
        assert said.code == 1
        assert 'series "nightly" has ended' in said.err
        assert cell.end()[0] == 0
