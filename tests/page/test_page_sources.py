"""What the page is made of: kept libraries with their hashes, sources without a request elsewhere, types and lint."""

import json
import re
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from schemas.topics import BY_NAME, LOG
from services.gateway.http.front_page import STYLES, joined_files, page_files
from tests.page.vendor import HERE, INDEX, LIBRARIES

PAGE = HERE.parents[1] / "services/gateway/page"
SOURCES = sorted(PAGE.glob("app/*.js"))
TOOLS = HERE / "node_modules/.bin"

needs_tools = pytest.mark.skipif(
    shutil.which("node") is None or not (TOOLS / "tsc").exists(),
    reason="no Node with typescript and eslint here (npm ci in tests/page)",
)


@pytest.mark.parametrize("folder", LIBRARIES, ids=lambda folder: folder.parent.name)
def test_each_kept_library_is_the_file_that_its_hash_names_and_has_its_licence(folder):
    rows = json.loads((folder / INDEX).read_text())
    licences = {path.name for path in folder.glob("*.licence.txt")}

    assert {row["file"]: row["sha256"] for row in rows} == {
        path.name: sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name != INDEX and path.name not in licences
    }
    for row in rows:
        assert f"{row['name'].removeprefix('@').replace('/', '-')}.licence.txt" in licences
        assert row["version"]
        assert row["licence"] in ("MIT", "Apache-2.0", "MPL-2.0")


def test_the_lock_names_no_index_and_has_a_hash_for_every_package():
    packages = json.loads((HERE / "package-lock.json").read_text())["packages"]
    locked = {name: about for name, about in packages.items() if name}

    assert locked
    assert not [name for name, about in locked.items() if "resolved" in about]
    assert all(about["integrity"].startswith("sha512-") for about in locked.values())


def test_every_module_that_a_source_names_is_there():
    assert SOURCES
    for source in SOURCES:
        for name in re.findall(r'^(?:import|export|\}) .*from "([^"]+)";$', source.read_text(), re.MULTILINE):
            assert (source.parent / name).resolve().is_file(), f"{source.name}: {name}"


def test_the_first_document_has_no_script_or_style_of_its_own_and_names_files_that_are_there():
    first = (PAGE / "index.html").read_text()
    named = re.findall(r'(?:src|href)="(page/[^"]+)"', first)

    assert not re.findall(r"<style|\sstyle=|\son\w+=|javascript:|//", first)
    assert re.findall(r"<script[^>]*>[^<]", first) == []
    served = {**page_files(), **joined_files(page_files())}
    assert {"page/all.js", "page/all.css", "page/app/first.js"} < {*named}
    assert [name for name in named if name.removeprefix("page/") not in served] == []


def test_every_module_and_every_style_sheet_comes_with_the_first_ones():
    joined = joined_files(page_files())
    modules = {path.relative_to(PAGE).as_posix() for path in [*SOURCES, *PAGE.glob("vendor/*.js")]}
    styles = {path.relative_to(PAGE).as_posix() for path in [*PAGE.glob("style/*.css"), *PAGE.glob("vendor/*.css")]}

    there = re.findall(r"^// ((?:app|vendor)/\S+\.js)$", joined["all.js"].content.decode(), re.MULTILINE)
    assert sorted(there) == sorted(modules - {"app/first.js"})
    assert {*STYLES} == styles
    for name in STYLES:
        assert (PAGE / name).read_bytes().rstrip() in joined["all.css"].content


def test_the_log_can_be_filtered_by_every_type_of_record():
    listed = (PAGE / "app/log.js").read_text().partition("TYPES = [")[2].partition("]")[0]

    assert {*re.findall(r'"(\w+)"', listed)} == {*BY_NAME[LOG].bodies}


def test_no_source_asks_another_host_or_makes_markup_of_text():
    for source in [*SOURCES, *PAGE.glob("style/*")]:
        text = source.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.findall(r"https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), (
            source
        )


@needs_tools
@pytest.mark.slow
def test_types():
    ran("tsc", "--project", str(HERE / "tsconfig.json"))


@needs_tools
@pytest.mark.slow
def test_lint():
    ran("eslint", "--config", "tests/page/eslint.config.js", "services/gateway/page/app", "tests/page")


def ran(tool, *arguments):
    said = subprocess.run(
        [TOOLS / tool, *arguments], cwd=PAGE.parents[2], capture_output=True, text=True, timeout=240, check=False
    )
    assert said.returncode == 0, said.stdout + said.stderr


def test_types_are_checked_of_all_sources():
    linked = HERE / "types/app"

    assert linked.is_symlink()
    assert Path(linked).resolve() == PAGE / "app"
