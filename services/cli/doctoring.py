"""`largesse doctor`: what is wrong with a cell, its bus and this machine, and what helps."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.arguments import Json, Url
from services.cli.ending import Refused, out, out_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from services.cli.doctor.findings import Finding, Level

Bus = Annotated[
    str | None,
    typer.Option(
        "--bus",
        help="look at its bus, too: kafka://HOST:PORT, or a data folder",
        metavar="BUS",
        show_default=False,
    ),
]
INDENT = " " * 9
_COUNTED: "dict[Level, str]" = {"bad": "wrong", "unknown": "unknown", "warn": "worth a look"}
_WORDS: "dict[Level, str]" = {"ok": "ok", "warn": "look at", "bad": "wrong", "unknown": "unknown"}


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("doctor", short_help="Say what is wrong with a cell, and what helps.")(doctor)


def doctor(
    bus: Bus = None,
    cell: Annotated[str, typer.Option("--cell", help="of which cell, on Kafka", metavar="CELL")] = "default",
    partition: Annotated[int, typer.Option("--partition", help="its partition, on Kafka", metavar="NUMBER", min=0)] = 0,
    url: Url = None,
    json: Json = False,
) -> None:
    """Look at this machine, at a cell by its gateway, and with --bus at the bus that it is on.

    Ends with 1 where something is wrong, or could not be looked at. Changes nothing.
    """
    from services.cli.doctor.findings import LEVELS

    found: list[Finding] = []
    for finding in _all(bus, cell, partition, url):
        found.append(finding)
        if not json:
            out(_text(finding))
    counts = {level: sum(each.level == level for each in found) for level in LEVELS}
    if json:
        out_json({"findings": [each.document() for each in found], "counts": counts})
    if counts["bad"] or counts["unknown"]:
        said = [f"{counts[level]} {word}" for level, word in _COUNTED.items() if counts[level]]
        raise Refused(f"of {len(found)} findings {', '.join(said)}")


def _all(bus: str | None, cell: str, partition: int, url: str | None) -> "Iterator[Finding]":
    from services.cli.client import Gateway
    from services.cli.doctor.bus import check_bus, of_bus
    from services.cli.doctor.certificates import of_certificates, of_gateways_certificate
    from services.cli.doctor.gateway import of_gateway
    from services.cli.doctor.machine import of_machine

    gateway = Gateway(url)
    if bus is not None:
        check_bus(bus)
    yield from of_machine(os.environ)
    yield from of_certificates(os.environ)
    yield from of_gateway(gateway)
    yield from of_gateways_certificate(url)
    if bus is not None:
        yield from of_bus(bus, cell, partition)


def _text(finding: "Finding") -> str:
    from services.cli.show import folded, on_terminal, plain

    line = plain(f"{_WORDS[finding.level]:8} {finding.area}: {finding.text}")
    remedy = plain(f"{INDENT}-> {finding.remedy}") if finding.remedy else ""
    texts = [line, remedy] if remedy else [line]
    return "\n".join(part for text in texts for part in (folded(text, INDENT) if on_terminal() else [text]))
