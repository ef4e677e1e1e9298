"""Jobs and policies that tests of `largesse up` share."""

import json

PLANNED = {
    "nodes": [{"name": "n", "capacity": {"cpu": "1", "memory": "1Gi"}}],
    "queues": {"name": "root", "children": [{"name": "default"}]},
    # Short steps and an early plan: leases begin soon. No pause of this machine makes the node a lost one.
    "policy": {
        "preset": "rayon",
        "reservation_agent": "early",
        "reservation_step_ms": 1_000,
        "node_lease_ms": 600_000,
        "reservation_user_permille": 1_000,  # A new cell would keep a fifth from the one user of these tests.
    },
}
"""A cluster file for a small cell with reservations."""


def job(name, *command, tasks=1, cpu="100m", **stage):
    """The document of a job of one stage `run`."""
    demand = {"cpu": cpu, "memory": "32Mi"}
    stages = [{"stage": "run", "tasks": tasks, "demand": demand, "command": list(command), **stage}]
    return json.dumps({"job": name, "stages": stages})


def shell(text):
    """The command that runs a line of shell."""
    return "sh", "-c", text
