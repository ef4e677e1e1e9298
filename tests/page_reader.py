"""The page in a real browser that reaches nothing but its gateway; what it complains of is kept."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest

from tests.browser import CHROMIUM

playwright = pytest.importorskip("playwright.sync_api", reason="playwright's Python package is not installed here")

GUARD_MS = 240_000
"""A busy machine may need a minute for what takes a tenth of a second."""
AXE = Path(__file__).parent / "page/vendor/axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
FLAGS = (
    *("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-extensions", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *(["--no-sandbox"] if os.geteuid() == 0 else []),  # Chromium has none for root.
)
WIDE, NARROW = (1_280, 900), (360, 740)


class Reader:
    """One tab that shows the page of a gateway. `complaints`: what its console, its scripts and its requests said."""

    def __init__(self, tab: Any, url: str) -> None:
        self.tab = tab
        self.url = url
        self.complaints: list[str] = []
        self.asked: list[str] = []
        tab.set_default_timeout(GUARD_MS)
        tab.on("console", self._console)
        tab.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        tab.on("request", lambda request: self.asked.append(request.url))

    def _console(self, message: Any) -> None:
        where = message.location.get("url", "")
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text} {where}")

    def open(self, view: str) -> None:
        """Goes to a view and waits until nothing of it is being read."""
        self.tab.goto(f"{self.url}/#/{view}")
        self.settled()

    def settled(self) -> None:
        """Waits until the view stands: a heading is there, and nothing is being read."""
        self.until(
            "document.querySelector('main h1') && !document.querySelector('main [aria-busy=true]')"
            " && !/^Reading /m.test(document.querySelector('main').innerText)"
        )

    def until(self, holds: str) -> None:
        """Waits until an expression is true. Playwright's own way has the page evaluate text, which its policy bars."""
        deadline = monotonic() + GUARD_MS / 1_000
        while not self._holds(holds):
            assert monotonic() < deadline, f"{holds}\n{self.complaints}\n{self.text('body')}"
            self.tab.wait_for_timeout(50)

    def _holds(self, holds: str) -> bool:
        try:
            return bool(self.tab.evaluate(holds))
        except playwright.Error as error:
            if "context was destroyed" not in str(error):  # The page is being loaded again.
                raise
            return False

    def text(self, selector: str = "main") -> str:
        """The text that a reader sees there."""
        found: str = self.tab.inner_text(selector)
        return found

    def facts(self) -> list[tuple[str, str, str, str]]:
        """Every number of the view as (kind, name, field, value)."""
        found = self.tab.eval_on_selector_all(
            "main [data-kind]",
            "each => each.map(({dataset}) => [dataset.kind, dataset.name, dataset.field, dataset.value])",
        )
        return [tuple(row) for row in found]

    def violations(self) -> list[str]:
        """What axe-core finds against WCAG 2.2 AA and its best practice."""
        self.tab.evaluate(AXE.read_text())
        found = self.tab.evaluate("rules => axe.run(document, {runOnly: rules})", RULES)
        return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found["violations"]]

    def too_wide(self) -> bool:
        """Whether the document scrolls sideways."""
        return bool(self.tab.evaluate("document.documentElement.scrollWidth > innerWidth"))

    def elsewhere(self) -> list[str]:
        """Requests to anywhere but the gateway."""
        return [url for url in self.asked if not url.startswith((f"{self.url}/", "data:", "blob:"))]


@contextmanager
def readers(url: str) -> Iterator[Any]:
    """Makes tabs of one browser: `reader(colours="dark", size=NARROW)`. `elsewhere`: the page of another gateway."""
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))

        def reader(colours: str = "light", size: tuple[int, int] = WIDE, *, elsewhere: str = "", **how: Any) -> Reader:
            width, height = size
            context = browser.new_context(color_scheme=colours, viewport={"width": width, "height": height}, **how)
            return Reader(context.new_page(), elsewhere or url)

        try:
            yield reader
        finally:
            browser.close()


class Truth:
    """What the API says at one record, for the facts of a view."""

    def __init__(self, url: str, at: int) -> None:
        self._client = httpx.Client(base_url=url, timeout=GUARD_MS / 1_000)
        self.at = at
        self._documents: dict[str, Any] = {}

    def document(self, path: str, **more: Any) -> Any:
        """A document at that record."""
        key = path + json.dumps(more)
        if key not in self._documents:
            answer = self._client.get(path, params={"at": self.at, **more})
            answer.raise_for_status()
            self._documents[key] = answer.json()
        return self._documents[key]

    def of(self, kind: str, name: str, field: str) -> str:
        """The value of a fact, as the page writes it."""
        return shown(self._value(kind, name, field))

    def _value(self, kind: str, name: str, field: str) -> Any:
        summary = self.document("/v1/summary")
        match kind:
            case "cell" if field in ("capacity", "used"):
                return summary[field][name]
            case "cell" if field == "promised":
                return summary["queues"]["promised"][name]
            case "cell":
                return summary[field]
            case "jobs" | "nodes":
                return summary[kind][name]
            case "waiting":
                return sum(row["tasks"] for row in summary["waiting"] if row["reason"] == name)
            case "queue" if field.startswith("reasons."):
                return self.document(f"/v1/queues/{name}/why")["reasons"][int(field.partition(".")[2])]["reason"]
            case "queue":
                return within(queue_of(self.document("/v1/queues"), name), field)
            case "job" if field.startswith("waited."):
                return within(self.document(f"/v1/jobs/{name}/why"), field)
            case "job" if field.startswith("reasons."):
                return self.document(f"/v1/jobs/{name}/why")["reasons"][int(field.partition(".")[2])]["reason"]
            case "job":
                return within(self.document(f"/v1/jobs/{name}"), field)
            case "stage":
                job, _, stage = name.partition("/")
                stages = {row["stage"]: row for row in self.document(f"/v1/jobs/{job}")["stages"]}
                return within(stages[stage], field)
            case "node" if field.startswith("reasons."):
                return self.document(f"/v1/nodes/{name}/why")["reasons"][int(field.partition(".")[2])]["reason"]
            case "node":
                nodes = {row["node"]: row for row in self.document("/v1/nodes")["nodes"]}
                return within(nodes[name], field, "0")
            case "room":
                return within(self.document("/v1/room")["classes"][int(name)], field)
            case "class":
                return within({row["class"]: row for row in self.document("/v1/classes")["classes"]}[name], field)
            case "reservation":
                rows = {row["reservation"]: row for row in self.document("/v1/reservations")["reservations"]}
                return within(rows[name], field)
            case "account" | "account-job":
                key = "queue" if kind == "account" else "job"
                rows = {row[key]: row for row in self.document("/v1/ledger")[f"{key}s"]}
                return within(rows[name], field, "0")
        raise AssertionError(f"a fact that no document has: {kind} {name} {field}")

    def close(self) -> None:
        """Ends its connections."""
        self._client.close()


def queue_of(root: Any, path: str) -> Any:
    """A queue of a tree."""
    if root["queue"] == path:
        return root
    found = [queue_of(child, path) for child in root["children"] if f"{path}/".startswith(f"{child['queue']}/")]
    assert len(found) == 1, path
    return found[0]


def within(document: Any, field: str, otherwise: Any = None) -> Any:
    """A value by the path of its field."""
    for part in field.split("."):
        if otherwise is not None and part not in document:
            return otherwise
        document = document[part]
    return document


def shown(value: Any) -> str:
    """A value as JavaScript writes it."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if not isinstance(value, float) else re.sub(r"e-0?", "e-", repr(value))
