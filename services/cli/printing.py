"""`largesse logs --follow`: what a task prints, attempt after attempt, until its job has ended."""

import sys
from time import sleep
from typing import Any

import httpx

from largesse.output import ATTEMPT, END
from services.cli.client import STATE_HEADER, Gateway, stranger
from services.cli.ending import Ending, Later, Unanswered, note, pipe
from services.cli.patience import Patience

FOLLOW_S = 0.5
"""Between two looks at the output of a task that runs."""


def output_of(gateway: Gateway, path: str, params: dict[str, Any]) -> httpx.Response:
    """What a task printed, as the gateway answers it. Raises as `Gateway.ask` does."""
    response = gateway.ask("GET", path, params=params)
    if ATTEMPT not in response.headers or END not in response.headers:
        raise stranger(response)
    return response


def print_output(response: httpx.Response) -> None:
    """One answer of the gateway, byte for byte."""
    with pipe():
        sys.stdout.buffer.write(response.content)
        sys.stdout.buffer.flush()


def follow_output(gateway: Gateway, path: str, params: dict[str, Any]) -> None:
    """Goes on until the job ends. Raises as `ask` does.

    While the job lives, a task that has not started and a node that does not answer are waited for: the node comes
    back, or the task runs elsewhere. A gateway that does not answer any more is waited for too, for a while.
    """
    attempt, offset, told, patience = params.get("attempt"), 0, "", Patience()
    while True:
        try:
            response = output_of(gateway, path, params | {"offset": offset})
            now = int(response.headers[ATTEMPT])
            if attempt not in (None, now):
                _print_rest(gateway, path, params | {"attempt": attempt, "offset": offset})
        except Unanswered as why:
            patience.wait(why)
            continue
        except Later as why:
            patience.answered()
            if told != str(why):
                told = str(why)
                note(f"{told} (still trying)")
            sleep(FOLLOW_S)
            continue
        told = ""
        patience.answered()
        if attempt not in (None, now):
            note(f"attempt {now}:")
            attempt, offset = now, 0
            continue
        attempt, offset = now, int(response.headers[END])
        print_output(response)
        if response.headers.get(STATE_HEADER) == "ended":
            return
        sleep(FOLLOW_S)


def _print_rest(gateway: Gateway, path: str, params: dict[str, Any]) -> None:
    """What an attempt printed between the last look and its end, if its node still has it. Raises Unanswered."""
    try:
        print_output(output_of(gateway, path, params))
    except Unanswered:
        raise
    except Ending as why:
        note(f"the end of attempt {params['attempt']} is not to be had: {why}")
