"""`largesse logs --follow`: what a task prints, attempt after attempt, until its job has ended."""

import sys
from time import sleep
from typing import Any

import httpx

from largesse.output import ATTEMPT, END
from services.cli.client import STATE_HEADER, Gateway
from services.cli.ending import Ending, Later, note, pipe

FOLLOW_S = 0.5
"""Between two looks at the output of a task that runs."""


def print_output(response: httpx.Response) -> None:
    """One answer of the gateway, byte for byte."""
    with pipe():
        sys.stdout.buffer.write(response.content)
        sys.stdout.buffer.flush()


def follow_output(gateway: Gateway, path: str, params: dict[str, Any]) -> None:
    """Goes on until the job ends. Raises as `ask` does.

    While the job lives, a task that has not started and a node that does not answer are waited for: the node comes
    back, or the task runs elsewhere.
    """
    attempt, offset, told = params.get("attempt"), 0, ""
    while True:
        try:
            response = gateway.ask("GET", path, params=params | {"offset": offset})
        except Later as why:
            if told != str(why):
                told = str(why)
                note(f"{told} (still trying)")
            sleep(FOLLOW_S)
            continue
        told = ""
        now = int(response.headers[ATTEMPT])
        if attempt not in (None, now):
            _print_rest(gateway, path, params | {"attempt": attempt, "offset": offset})
            note(f"attempt {now}:")
            attempt, offset = now, 0
            continue
        attempt, offset = now, int(response.headers[END])
        print_output(response)
        if response.headers.get(STATE_HEADER) == "ended":
            return
        sleep(FOLLOW_S)


def _print_rest(gateway: Gateway, path: str, params: dict[str, Any]) -> None:
    """What an attempt printed between the last look and its end, if its node still has it."""
    try:
        print_output(gateway.ask("GET", path, params=params))
    except Ending as why:
        note(f"the end of attempt {params['attempt']} is not to be had: {why}")
