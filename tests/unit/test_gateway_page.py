"""The page as it is served: from the package alone, under a policy that lets a browser load nothing from elsewhere."""

import asyncio
import re
from html.parser import HTMLParser
from urllib.parse import urljoin

import httpx
import pytest
from fastapi import FastAPI

from services.gateway.http.front_page import FOLDER, HEADERS, POLICY, add_front_page, page_files
from tests.gateway_cell import run_in_memory, until_ready
from tests.http_rig import run_over_http

HERE = "http://127.0.0.1:8642/"


class Seen(HTMLParser):
    """What a page loads, and what of it the policy would keep from running."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.inline, self.links = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        of = dict(attrs)
        self.inline += [name for name in of if name.startswith("on") or name == "style"]
        if tag == "style" or (tag == "script" and "src" not in of):
            self.inline.append(tag)
        if tag in ("script", "img", "iframe", "source"):
            self.loads.append(of.get("src", ""))
        if tag == "link":
            self.loads.append(of.get("href", ""))
        if tag == "a":
            self.links.append(of.get("href", ""))


def served(path, **headers):
    async def story(cell):
        return await cell.http.get(path, headers=headers)

    return run_in_memory(story, answering=False, following=False)


def test_the_page_comes_before_the_log_has_been_read_and_under_its_policy():
    page = served("/")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert {name: page.headers[name] for name in HEADERS} == HEADERS
    assert page.content == (FOLDER / "index.html").read_bytes()


def test_the_policy_allows_this_server_alone():
    rules = dict(rule.strip().split(" ", 1) for rule in POLICY.split(";"))
    assert rules.pop("img-src") == "'self' data:"
    assert rules.pop("default-src") == "'none'"
    assert set(rules.values()) == {"'self'", "'none'"}
    assert {"script-src", "style-src", "connect-src", "base-uri", "form-action", "frame-ancestors"} <= rules.keys()


def test_the_page_runs_nothing_inline_and_loads_nothing_from_elsewhere():
    async def story(cell):
        await until_ready(cell)
        seen = Seen((await cell.get("/")).text)
        loads = [urljoin(HERE, each) for each in seen.loads if not each.startswith("data:")]
        links = [urljoin(HERE, each) for each in seen.links if not each.startswith("#")]
        return seen, [(path, (await cell.get(path)).status_code) for path in [*loads, *links]]

    seen, statuses = run_in_memory(story)
    assert seen.inline == []
    assert all(url.startswith(HERE) for url, _ in statuses)
    assert [(url, status) for url, status in statuses if status != 200] == []


def test_every_file_of_the_page_has_its_type_and_a_tag(tmp_path):
    kinds = {
        "index.html": "text/html",
        "app/a.js": "text/javascript",
        "style/s.css": "text/css",
        "v/x.json": "application/json",
    }
    for name in kinds:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "secret").write_text("no type, not served")
    (tmp_path / ".hidden.js").write_text("not served")
    outside = tmp_path.parent / "outside.js"
    outside.write_text("not served")
    asyncio.run(check_files(tmp_path, kinds))
    assert sorted(page_files(tmp_path)) == sorted(kinds)


async def check_files(folder, kinds):
    app = FastAPI()
    add_front_page(app, folder)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")
    for name, kind in kinds.items():
        found = await client.get(f"/page/{name}")
        assert (found.status_code, found.text) == (200, name)
        assert found.headers["content-type"].partition(";")[0] == kind
        assert found.headers["content-security-policy"] == POLICY
        tag = found.headers["etag"]
        for said in (tag, f'"other", W/{tag}', "*"):
            same = await client.get(f"/page/{name}", headers={"If-None-Match": said})
            assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
        changed = await client.get(f"/page/{name}", headers={"If-None-Match": '"other"'})
        assert changed.status_code == 200
    for name in ("secret", ".hidden.js", "../outside.js", "%2e%2e/outside.js", "app", "", "app//a.js", "/etc/passwd"):
        found = await client.get(f"/page/{name}")
        assert found.status_code == 404, name
        assert found.headers.get("content-security-policy") == (POLICY if "page/" in str(found.url) else None)


@pytest.mark.parametrize("path", ["/", "/page/index.html"])
def test_head_says_what_get_would_without_the_content(path):
    async def story(served):
        client = await served.connect()
        got = await client.ask("GET", path)
        await client.say(f"HEAD {path} HTTP/1.1\r\nhost: {client.host}\r\n\r\n".encode())
        head = await client.head()
        again = await client.ask("GET", "/livez")  # Had there been content, this could not be read.
        return got, head, again.status

    got, (status, headers), after = run_over_http(story)
    assert (got.status, status, after) == (200, 200, 200)
    assert headers["content-length"] == str(len(got.body))
    assert headers["etag"] == got.headers["etag"]


def test_other_methods_are_told_what_the_page_takes():
    async def story(cell):
        return await cell.http.post("/")

    refused = run_in_memory(story, answering=False, following=False)
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


def test_files_of_the_package_are_those_that_are_served():
    assert "index.html" in page_files()
    assert not [name for name in page_files() if re.search(r"(^|/)\.", name)]
