"""The page in a real browser over a large cell that changes all the time: how soon each view stands, how soon a change
is shown, whether the browser's memory grows, and what open pages cost the cell.

    python -m benchmarks.page [--nodes 1000] [--jobs 10000] [--queues 200] [--rate 100] [--loads 5]
        [--minutes 10] [--pages 20] [--shots DIR] [--only views,change,cost,heap] [--quick]

Starts an embedded cell with simulated nodes (`benchmarks.page_cell`), then a headless Chromium (Debian's, with
playwright's Python package). A view stands when nothing of it is being read any more; times count from the navigation
on, with nothing in the browser's cache. What pages cost is measured with clients that ask for what a page on the
overview asks for, since as many browsers on the same processors would be measured instead. `--shots` keeps a picture of
every view, light and dark, wide and narrow. Nothing is asserted.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
from playwright.async_api import Browser, Page, async_playwright

VIEWS = (
    *(
        "overview",
        "queues",
        "queues/org-00",
        "jobs",
        "jobs?state=waiting&sort=-waiting",
        "jobs/{running}",
        "jobs/{waiting}",
    ),
    *("nodes", "nodes/node-0001", "reservations", "classes", "donations", "log", "whatif", "submit"),
)
OF_A_PAGE = ("v1/summary?behind={seq}", "v1/reservations")
"""What a page on the overview reads when the cell has changed."""
SLOW = ("v1/history?points=240",)
"""And what it reads every five seconds."""
WIDE, NARROW = (1_280, 900), (360, 740)
FLAGS = (
    *("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-extensions", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *(["--no-sandbox"] if os.geteuid() == 0 else []),  # Chromium has none for root.
)
STANDS = """
(() => {
  const find = (what) => [...document.querySelectorAll(`main ${what}`)];
  const reads = () => find("[role=status]").some((each) => each.textContent.startsWith("Reading"));
  const look = () => {
    if (find("h1").length && !find("[aria-busy=true]").length && !reads()) window.stood = performance.now();
    else requestAnimationFrame(look);
  };
  addEventListener("DOMContentLoaded", look);
})();
"""
GUARD_S = 1_800
LOADS = 5
CHANGES = 20
COST_S = 30.0
EVENTS_MS, AGAIN_S, SLOW_S = 500, 0.7, 5.0
"""As in services/gateway/page/app: changes.js, documents.js, history.js."""
STAND_S = 300
LOOK_S = 30.0


class Cell:
    """The cell's process, and what it says each second."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.url = ""
        self.last: dict[str, Any] = {}
        self.rounds: list[int] = []

    async def listen(self) -> None:
        """Takes its lines."""
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            said = json.loads(line)
            self.url = said.get("url", self.url)
            if "live" in said:
                self.last = said
                self.rounds += said["rounds"]

    async def filled(self, jobs: int) -> None:
        """Waits until all jobs are there and it changes at its rate."""
        deadline = time.monotonic() + GUARD_S
        while not self.last.get("filled") or self.last["live"] < jobs * 0.98:
            assert time.monotonic() < deadline and self.process.returncode is None, f"the cell has come to {self.last}"
            await asyncio.sleep(0.5)


@asynccontextmanager
async def cell_of(asked: argparse.Namespace, folder: Path) -> AsyncIterator[Cell]:
    """A cell with everything in it."""
    sizes = (asked.nodes, asked.jobs, asked.queues, asked.rate)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.page_cell", str(folder), *map(str, sizes)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 20,
    )
    cell = Cell(process)
    listening = asyncio.ensure_future(cell.listen())
    try:
        await cell.filled(asked.jobs)
        yield cell
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        await listening


# ---------------------------------------------------------------- views
async def opened(browser: Browser, url: str, colours: str = "light", size: tuple[int, int] = WIDE) -> Page:
    """A tab of its own that notes when its view stands."""
    width, height = size
    context = await browser.new_context(color_scheme=colours, viewport={"width": width, "height": height})  # type: ignore[arg-type]
    tab = await context.new_page()
    tab.set_default_timeout(60_000)
    await tab.add_init_script(STANDS)
    return tab


async def stood_ms(tab: Page, url: str) -> float:
    """Goes there and waits until the view stands."""
    await tab.goto(url)
    deadline = time.monotonic() + STAND_S
    while (found := await tab.evaluate("window.stood ?? null")) is None:
        assert time.monotonic() < deadline, f"{url} does not stand"
        await asyncio.sleep(0.02)
    return float(found)


async def named_views(url: str) -> list[str]:
    """The views, with jobs that are there."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        names = {}
        for state in ("running", "waiting"):
            found = (await http.get("/v1/jobs", params={"state": state, "limit": 1, "sort": "-tasks"})).json()["jobs"]
            names[state] = found[0]["job"] if found else "none"
    return [view.format(**names) for view in VIEWS]


def cpu_s_of(process: psutil.Process) -> float:
    """CPU seconds so far."""
    try:
        spent = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(spent.user + spent.system)


def browser_cpu_s() -> float:
    """Of all processes of the browser."""
    each = psutil.Process().children(recursive=True)
    return sum(cpu_s_of(process) for process in each if "chrom" in process.name())


async def views(browser: Browser, cell: Cell, loads: int) -> None:
    """How soon each view stands, from an empty cache; and CPU time until then, which other programs change least."""
    here = psutil.Process(cell.process.pid)
    for view in await named_views(cell.url):
        took, ours, theirs = [], [], []
        for _ in range(loads):
            tab = await opened(browser, cell.url)
            before = cpu_s_of(here), browser_cpu_s()
            took.append(await stood_ms(tab, f"{cell.url}/#/{view}"))
            ours.append(1_000 * (cpu_s_of(here) - before[0]))
            theirs.append(1_000 * (browser_cpu_s() - before[1]))
            await tab.context.close()
        spent = f"CPU time meanwhile: cell {min(ours):.0f} ms, browser {min(theirs):.0f} ms at least"
        print(
            f"{view:36} stands after {statistics.median(took):.0f} ms, at least {min(took):.0f} ms; {spent}", flush=True
        )


async def shots(browser: Browser, cell: Cell, folder: Path) -> None:
    """A picture of every view."""
    for view in await named_views(cell.url):
        for colours, size in (("light", WIDE), ("dark", NARROW), ("dark", WIDE), ("light", NARROW)):
            tab = await opened(browser, cell.url, colours, size)
            await stood_ms(tab, f"{cell.url}/#/{view}")
            await asyncio.sleep(0.5)
            name = view.replace("/", "-").replace("?", "-").replace("&", "-")
            await tab.screenshot(path=folder / f"{name}.{colours}.{size[0]}.png", full_page=True)
            await tab.context.close()


async def change(browser: Browser, cell: Cell, changes: int) -> None:
    """From a submission's answer to its row in an open list, and of a hold to its job's open view."""
    shown: dict[str, list[float]] = {"in a list": [], "in its view": []}
    tab, view = await opened(browser, cell.url), await opened(browser, cell.url)
    await stood_ms(tab, f"{cell.url}/#/jobs?q=probe")
    async with httpx.AsyncClient(base_url=cell.url, timeout=60) as http:
        for number in range(changes):
            job = f"probe-{number}"
            stage = {"stage": "s", "tasks": 1, "demand": {"cpu": "1"}, "duration_ms": 60_000}
            (
                await http.post(
                    "/v1/jobs", json={"job": job, "queue": "org-00/team-0", "hold": True, "stages": [stage]}
                )
            ).raise_for_status()
            begun = time.perf_counter()
            await tab.locator(f"main tbody a[href='#/jobs/{job}']").wait_for()
            shown["in a list"].append(time.perf_counter() - begun)
            if number == 0:
                await stood_ms(view, f"{cell.url}/#/jobs/{job}")
            await asyncio.sleep(0.3 + 0.07 * number)
            is_held = number % 2 == 0
            (await http.patch("/v1/jobs/probe-0", json={"hold": not is_held})).raise_for_status()
            begun = time.perf_counter()
            await view.get_by_role("button", name="Hold" if is_held else "Release", exact=True).wait_for()
            shown["in its view"].append(time.perf_counter() - begun)
        for number in range(changes):
            await http.delete(f"/v1/jobs/probe-{number}")
    for where, took in shown.items():
        print(f"a change is shown {where}: median {statistics.median(took):.2f} s, most {max(took):.2f} s", flush=True)
    await tab.context.close()
    await view.context.close()


# ---------------------------------------------------------------- what pages cost
async def as_a_page(http: httpx.AsyncClient, read: list[float]) -> None:
    """Follows the cell and reads what a page on the overview reads."""
    news, seq = asyncio.Event(), 0

    async def follow() -> None:
        nonlocal seq
        async with http.stream("GET", "/v1/changes", params={"min_interval_ms": EVENTS_MS}) as stream:
            async for line in stream.aiter_lines():
                if line.startswith("id:"):
                    seq = int(line.partition(":")[2])
                    news.set()

    following, last_slow = asyncio.ensure_future(follow()), 0.0
    try:
        while True:
            await news.wait()
            news.clear()
            begun = time.perf_counter()
            paths = OF_A_PAGE if begun - last_slow < SLOW_S else OF_A_PAGE + SLOW
            last_slow = begun if len(paths) > len(OF_A_PAGE) else last_slow
            await asyncio.gather(*(http.get(f"/{path.format(seq=seq)}") for path in paths))
            read.append(time.perf_counter() - begun)
            await asyncio.sleep(max(0.0, begun + AGAIN_S - time.perf_counter()))
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def watched(cell: Cell, seconds: float) -> tuple[float, list[int], float]:
    """CPU seconds a second of the cell's process, how long its rounds took, and records a second."""
    before, begun = cell.last, time.perf_counter()
    cell.rounds.clear()
    await asyncio.sleep(seconds)
    spent = time.perf_counter() - begun
    return (
        (cell.last["cpu_s"] - before["cpu_s"]) / spent,
        list(cell.rounds),
        (cell.last["records"] - before["records"]) / spent,
    )


async def cost(cell: Cell, pages: int, seconds: float) -> None:
    """The cell alone, and beside open pages, in turns."""
    alone, beside = [], []
    for _ in range(2):
        alone.append(await watched(cell, seconds))
        read: list[float] = []
        async with httpx.AsyncClient(base_url=cell.url, timeout=60, limits=httpx.Limits(max_connections=None)) as http:
            clients = [asyncio.ensure_future(as_a_page(http, read)) for _ in range(pages)]
            await asyncio.sleep(3)
            beside.append(await watched(cell, seconds))
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)
        print(f"{pages} pages: they read again in {_cut([each * 1_000 for each in read])}", flush=True)
    for name, found in (("no page", alone), (f"{pages} pages", beside)):
        took = [ms for _, rounds, _ in found for ms in rounds]
        cpu, rate = statistics.mean(each[0] for each in found), statistics.mean(each[2] for each in found)
        print(f"{name}: the cell takes {cpu:.3f} of a processor, {rate:.0f} records/s, rounds {_cut(took)}", flush=True)
    more = statistics.mean(each[0] for each in beside) - statistics.mean(each[0] for each in alone)
    print(f"a page costs {1_000 * more / pages:.1f} ms of CPU time a second", flush=True)


def _cut(took: Sequence[float]) -> str:
    if len(took) < 2:
        return "none"
    cut = statistics.quantiles(took, n=100, method="inclusive")
    return f"p50 {cut[49]:.0f} ms, p99 {cut[98]:.0f} ms ({len(took)})"


# ---------------------------------------------------------------- memory
async def heap(browser: Browser, cell: Cell, minutes: float) -> None:
    """What the heap of open tabs has after a collection, from time to time."""
    tabs = {view: await opened(browser, cell.url) for view in ("overview", "jobs", "nodes")}
    sessions = {}
    for view, tab in tabs.items():
        await stood_ms(tab, f"{cell.url}/#/{view}")
        sessions[view] = await tab.context.new_cdp_session(tab)
        await sessions[view].send("Performance.enable")
    found: dict[str, list[float]] = {view: [] for view in tabs}
    begun = time.monotonic()
    while time.monotonic() - begun < minutes * 60:
        await asyncio.sleep(min(LOOK_S, minutes * 6))
        for view, session in sessions.items():
            await session.send("HeapProfiler.collectGarbage")
            metrics = (await session.send("Performance.getMetrics"))["metrics"]
            found[view].append(next(each["value"] for each in metrics if each["name"] == "JSHeapUsedSize") / 2**20)
    for view, sizes in found.items():
        half = len(sizes) // 2
        print(
            f"heap of {view} over {minutes:g} min: {sizes[0]:.1f} MiB at first, {statistics.mean(sizes[:half]):.1f} in"
            f" the first half, {statistics.mean(sizes[half:]):.1f} in the second, {max(sizes):.1f} at most",
            flush=True,
        )
        await tabs[view].context.close()


async def run(asked: argparse.Namespace, folder: Path) -> None:
    """All of it, printed as it comes."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    only = asked.only.split(",")
    async with cell_of(asked, folder) as cell, async_playwright() as driver:
        said = cell.last
        print(
            f"{asked.nodes} nodes, {said['live']:,} live jobs, {said['running']:,} tasks run, at {cell.url}", flush=True
        )
        browser = await driver.chromium.launch(executable_path=chromium, args=list(FLAGS))
        if "views" in only:
            await views(browser, cell, 1 if asked.quick else asked.loads)
        if "change" in only:
            await change(browser, cell, 3 if asked.quick else CHANGES)
        if "cost" in only:
            await cost(cell, asked.pages, 5.0 if asked.quick else COST_S)
        if "heap" in only:
            await heap(browser, cell, asked.minutes)
        if asked.shots is not None:
            await shots(browser, cell, asked.shots)
        await browser.close()
        if asked.stay:
            await asyncio.sleep(asked.stay)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--queues", type=int, default=200)
    parser.add_argument("--rate", type=int, default=100, help="records a second")
    parser.add_argument("--minutes", type=float, default=10.0, help="for which the heap is looked at")
    parser.add_argument("--loads", type=int, default=LOADS, help="of each view")
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--shots", type=Path, help="a folder for pictures of all views")
    parser.add_argument("--only", default="views,change,cost,heap")
    parser.add_argument("--stay", type=float, default=0.0, help="seconds for which the cell stays there at the end")
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    if asked.shots is not None:
        asked.shots.mkdir(parents=True, exist_ok=True)
    if asked.quick:
        asked.nodes, asked.jobs, asked.queues, asked.minutes = 50, 500, 40, 0.2
    with tempfile.TemporaryDirectory(prefix="largesse-bench-") as folder:
        asyncio.run(run(asked, Path(folder)))


if __name__ == "__main__":
    main()
