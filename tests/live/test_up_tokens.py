"""A cell that is closed while it does not run, and started again: who has a token goes on, all others are told how."""

import json

import pytest

from tests.live.up_jobs import shell
from tests.live.up_process import up

pytestmark = pytest.mark.slow

JOB = {
    "job": "j",
    "stages": [
        {
            "stage": "s",
            "tasks": 1,
            "demand": {"cpu": "100m", "memory": "32Mi"},
            "command": [*shell("echo hello; env | grep -c LARGESSE_TOKEN")],
        }
    ],
}


def test_the_first_token_is_made_on_the_bus_and_closes_the_cell(tmp_path):
    data, path = tmp_path / "data", tmp_path / "admin.token"
    make = ("token", "make", "admin", "--user", "ann", "--role", "admin", "--out", path, "--bus", data)
    with up(data, "--nodes", 1) as cell:
        assert cell.ask("get", "jobs").code == 0
        held = cell.ask(*make)
        assert (held.code, path.exists()) == (2, False)
        assert "A running cell is asked through its gateway: omit --bus" in " ".join(held.err.split())
    made = cell.ask(*make)
    assert made.code == 0, made.err

    with up(data, "--nodes", 1) as cell:
        stranger = cell.ask("get", "jobs")
        assert stranger.code == 1
        assert "largesse token make NAME --user USER --role viewer" in " ".join(stranger.err.split())
        known = {"LARGESSE_TOKEN_FILE": str(path), "LARGESSE_USER": "somebody"}
        said = cell.ask("submit", "-", "--watch", stdin=json.dumps(JOB), LARGESSE_TOKEN_FILE=str(path))
        assert said.code in (0, 1), said.err  # grep ends with 1 where it counts nothing.
        job = cell.ask("get", "job", "j", "--json", LARGESSE_TOKEN_FILE=str(path)).json
        assert job["user"] == "ann"
        assert cell.ask("logs", "j/s/0", LARGESSE_TOKEN_FILE=str(path)).out == "hello\n0\n"
        other = cell.ask("submit", "-", stdin=json.dumps(JOB | {"job": "k"}), **known)
        assert other.code == 0, other.err  # An admin may name another user.
        assert cell.ask("get", "job", "k", "--json", LARGESSE_TOKEN_FILE=str(path)).json["user"] == "somebody"
        tail = cell.ask("token", "list", LARGESSE_TOKEN_FILE=str(path), columns=200)
        assert "admin" in tail.out
