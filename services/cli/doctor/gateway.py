"""A cell by its gateway: is it there, does its log go on, who may ask, and what waits for a hand."""

import time
from collections.abc import Callable
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from largesse.release import VERSION
from services.cli.doctor.findings import Finding, Findings, judged
from services.cli.ending import Ending, Unanswered
from services.cli.show import moment, plural

if TYPE_CHECKING:
    import httpx

    from services.cli.client import Gateway, Row

CLOCK_WARN_S, CLOCK_BAD_S = 5, 60
"""How far clocks may differ: leases of nodes, leases of reservations and tokens go by them."""
SILENT_WARN_MS, SILENT_BAD_MS = 5_000, 15_000
"""The sequencer writes a record each second."""
OPEN_WARN_MS, OPEN_BAD_MS = 5_000, 60_000
"""A round takes milliseconds: one that is open for longer waits for a service."""
TOKEN_WARN_MS = 7 * 86_400_000
REFUSED_MS = 86_400_000
NAMED_MAX = 5


def of_gateway(gateway: "Gateway") -> Findings:
    """Asks what every viewer may ask. What one question is refused does not end the others."""
    try:
        sent_s = time.time()
        response = gateway.ask("GET", "/readyz")
        arrived_s = time.time()
        ready: Row = response.json()
    except Ending as error:
        brief = error.brief if isinstance(error, Unanswered) else str(error)
        remedy = "is the gateway up, and is this its address? (--url, LARGESSE_URL, `largesse context`)"
        yield Finding("gateway", "bad", brief, remedy)
        return
    if not ready["cell"]:
        text = f"{gateway.url} has read no record: there is no cell on its bus yet, or it is another bus than was meant"
        yield Finding("gateway", "bad", text, "is services.admission up, on the same LARGESSE_BUS?")
        return
    yield Finding(
        "gateway",
        "ok",
        f"{gateway.url} serves cell {ready['cell']}, and has read its log up to record {ready['seq']:,}",
    )
    if ready.get("recorded"):
        yield Finding("log", "ok", "a recorded log: nothing goes on in it")
        return
    yield _release(ready)
    yield from _clocks(response, (sent_s + arrived_s) / 2, ready)
    yield _log_goes_on(ready)
    for look in (_rights, _cell, _nodes, _router):
        try:
            yield from look(gateway)
        except Ending as error:
            yield Finding(_AREAS[look], "unknown", f"could not be asked: {error}", "ask with a viewer's token")


# ---------------------------------------------------------------- the gateway itself
def _release(ready: "Row") -> Finding:
    theirs = ready.get("version", "")
    if theirs == VERSION:
        return Finding("versions", "ok", f"gateway and this command are of release {VERSION}")
    text = f"the gateway is of release {theirs or '(it does not say)'}, this command of {VERSION}"
    return Finding("versions", "warn", text, "install the same release on both sides")


def _clocks(response: "httpx.Response", here_s: float, ready: "Row") -> Findings:
    with suppress(KeyError, ValueError, TypeError):
        there_s = parsedate_to_datetime(response.headers["Date"]).timestamp() + 0.5  # It has whole seconds.
        apart_s = abs(there_s - here_s)
        yield judged(
            "clocks",
            apart_s,
            CLOCK_WARN_S,
            CLOCK_BAD_S,
            f"this machine's clock and the gateway's are {_seconds(apart_s)} apart",
            "let chrony or systemd-timesyncd set both clocks: tokens end by the gateway's",
        )
        # A record has the sequencer's time; it may be older than the last one that was heard of.
        ahead_s = ready["time"] / 1_000 - there_s
        if ahead_s >= CLOCK_WARN_S:
            yield Finding(
                "clocks",
                "bad" if ahead_s >= CLOCK_BAD_S else "warn",
                f"the log's time is {_seconds(ahead_s)} ahead of the gateway's clock",
                "set the clock of the machine of services.admission: the log's time never goes back, it waits",
            )


def _seconds(amount: float) -> str:
    return "less than a second" if amount < 1 else f"{amount:.0f} s"


def _log_goes_on(ready: "Row") -> Finding:
    silent_ms = ready["silent_ms"]
    return judged(
        "log",
        silent_ms,
        SILENT_WARN_MS,
        SILENT_BAD_MS,
        f"the sequencer was last heard {silent_ms / 1_000:.1f} s ago; it speaks every three seconds",
        "is services.admission up, and the bus? Its line `stopped` in the log says what ended it, and what helps",
    )


# ---------------------------------------------------------------- the cell
def _router(gateway: "Gateway") -> Findings:
    router = gateway.document("GET", "/v1/cells", "cells").get("router")
    if router is None:
        return
    jobs = router["jobs"]
    held = f"{plural(jobs['waiting'], 'job')} wait for a cell" if jobs["waiting"] != 1 else "1 job waits for a cell"
    silent_ms = router["silent_ms"]
    yield judged(
        "router",
        silent_ms,
        SILENT_WARN_MS,
        SILENT_BAD_MS,
        f"the router wrote into its log {silent_ms / 1_000:.1f} s ago, as it does every second; {held}",
        "start it: python -m services.router. Jobs that name no cell wait for it, and no others",
    )
    if router["behind"]:
        text = f"{plural(router['behind'], 'message')} to the router not taken yet"
        yield Finding("router", "warn", text, "more come than it takes, or it does not run: see largesse_router_jobs")
    for each in router["cells"]:
        if each["state"] != "heard":
            yield Finding(
                "router", "warn", f"it sends no jobs to cell {each['cell']}: {_UNHEARD[each['state']]}", _HEAR
            )
    if all(each["state"] == "heard" for each in router["cells"]):
        yield Finding("router", "ok", f"it hears {plural(len(router['cells']), 'cell')}")


_UNHEARD = {"silent": "its sequencer has been silent for it", "unread": "its log is not read there, or cannot be"}
_HEAR = "is services.admission of that cell up? A log that cannot be folded is `cell_unread` in the router's own log"


def _rights(gateway: "Gateway") -> Findings:
    session = gateway.document("GET", "/v1/session", "user", "open")
    if session["open"]:
        is_local = urlsplit(gateway.url).hostname in ("127.0.0.1", "localhost", "::1")
        text = "the cell is open: whoever reaches the gateway may do everything"
        remedy = "largesse token make admin --user NAME --role admin --out FILE closes it"
        yield Finding("rights", "ok" if is_local else "bad", text, "" if is_local else remedy)
        return
    if session["user"] is None:
        if gateway.has_token:
            text = "the token that was sent is not known here, was revoked, or has expired"
            yield Finding("rights", "warn", text, "ask an admin of the cell for another one")
            return
        remedy = "export LARGESSE_TOKEN_FILE=FILE, or give the context a token_file"
        yield Finding("rights", "warn", "the cell asks for a token, and none was sent", remedy)
        return
    yield Finding("rights", "ok", f"you ask as {session['user']} ({', '.join(session['roles'])})")
    if session["role"] == "admin":
        yield from _ending_tokens(gateway)


def _ending_tokens(gateway: "Gateway") -> Findings:
    now_ms = time.time() * 1_000
    for row in gateway.document("GET", "/v1/tokens", "tokens")["tokens"]:
        if row["expires_ms"] is not None and 0 < row["expires_ms"] - now_ms < TOKEN_WARN_MS:
            text = f"token {row['name']} of {row['user']} ends at {moment(row['expires_ms'])}"
            yield Finding("rights", "warn", text, "largesse token make makes another one; hand it over before")


def _cell(gateway: "Gateway") -> Findings:
    summary = gateway.document("GET", "/v1/summary", "waiting", "queues", "refused", "open_since_ms", "time")
    since_ms = summary["open_since_ms"]
    open_ms = 0.0 if since_ms is None else max(0.0, time.time() * 1_000 - since_ms)
    yield judged(
        "rounds",
        open_ms,
        OPEN_WARN_MS,
        OPEN_BAD_MS,
        "rounds are answered"
        if open_ms < OPEN_WARN_MS
        else f"round {summary['round']} has been open for {open_ms / 1_000:.0f} s",
        "a service has not answered: start fairness, altruism (every shard) and leftover where they are not up",
    )
    yield from _waiting(summary)
    yield from _guarantees(summary["queues"])
    yield from _refused(summary)


def _waiting(summary: "Row") -> Findings:
    rows = summary["waiting"]
    stuck = [row for row in rows if row["reason"] == "no_node"]
    tasks = sum(row["tasks"] for row in stuck)
    if tasks:
        names = _named([row["queue"] for row in stuck])
        yield Finding(
            "waiting",
            "warn",
            f"no node that is there could ever run {plural(tasks, 'task')} of {names}",
            "largesse get jobs --state waiting, then largesse why JOB: it says what nodes lack",
        )
    else:
        yield Finding("waiting", "ok", f"{plural(sum(row['tasks'] for row in rows), 'task')} wait; nodes could run all")


def _guarantees(tree: "Row") -> Findings:
    broken = [queue for queue in _queues(tree) if queue["breach"] is not None]
    for queue in broken[:NAMED_MAX]:
        yield Finding(
            "guarantees",
            "warn",
            f"queue {queue['queue'] or 'root'} has held less than it is guaranteed since "
            f"{moment(queue['breach']['since_ms'])}",
            f"largesse why {queue['queue']}",
        )
    if not broken:
        yield Finding("guarantees", "ok", "no queue waits for what it is guaranteed")


def _queues(tree: "Row") -> "list[Row]":
    return [tree, *(found for child in tree["children"] for found in _queues(child))]


def _refused(summary: "Row") -> Findings:
    latest = [row for row in summary["refused"]["latest"] if summary["time"] - row["time_ms"] < REFUSED_MS]
    if latest:
        row = latest[0]
        count = plural(summary["refused"]["count"], "input")
        text = f"{count} refused for good, the last one at {moment(row['time_ms'])}: {row['topic']}, {row['field']}: "
        remedy = f"whoever sent it ({row['author'] or 'unknown'}) has to send it right; `largesse audit LOG` has all"
        yield Finding("inputs", "warn", text + row["reason"], remedy)
    else:
        yield Finding("inputs", "ok", "no input was refused for good within a day")


def _nodes(gateway: "Gateway") -> Findings:
    nodes: list[Row] = gateway.document("GET", "/v1/nodes", "nodes")["nodes"]
    by_state: dict[str, list[Row]] = {}
    for node in nodes:
        by_state.setdefault(node["state"], []).append(node)
    if not by_state.get("ready"):
        yield Finding("nodes", "bad", f"none of {plural(len(nodes), 'node')} is ready: no task can start", _START_AGENT)
    else:
        yield Finding("nodes", "ok", f"{len(by_state['ready']):,} of {plural(len(nodes), 'node')} are ready")
    if lost := by_state.get("lost"):
        names = _named([node["node"] for node in lost])
        yield Finding("nodes", "warn", f"lost: {names}", "start their agents, or largesse node remove NODE")
    for node in by_state.get("draining", ())[:NAMED_MAX]:
        drain = node["drain"] or {"author": "", "reason": ""}
        why = f": {drain['reason']}" if drain["reason"] else ""
        yield Finding("nodes", "ok", f"{node['node']} is drained by {drain['author'] or 'somebody'}{why}")
    for node in by_state.get("unschedulable", ())[:NAMED_MAX]:
        remedy = "mend that; the agent says so by itself once it is gone"
        yield Finding("nodes", "warn", f"{node['node']} takes no tasks: {node['unschedulable']}", remedy)
    hurt = [node["node"] for node in nodes if any(gpu.get("out") for gpu in node["devices"].get("gpu", ()))]
    if hurt:
        yield Finding("nodes", "warn", f"GPUs are out on {_named(hurt)}", "largesse why NODE says which, and why")
    failing = [node["node"] for node in nodes if node["failing"] is not None]
    if failing:
        remedy = "largesse why NODE; largesse node drain NODE while it is looked at"
        yield Finding("nodes", "warn", f"attempts of several jobs fail in a row on {_named(failing)}", remedy)


_START_AGENT = "largesse node resume NODE, where it is drained; else start its agent"


def _named(names: list[str]) -> str:
    shown = ", ".join(name or "root" for name in names[:NAMED_MAX])
    return shown + (f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else "")


_AREAS: dict[Callable[["Gateway"], Findings], str] = {
    _rights: "rights",
    _cell: "cell",
    _nodes: "nodes",
    _router: "router",
}
