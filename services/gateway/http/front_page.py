"""The page: `/` and the files below `/page/`, as they lie in the package. Nothing else is ever read from disk.

What every view needs comes in one script and one style sheet, joined from those files as the gateway starts. A browser
gets no script, style or connection but those of this server: its policy for the page says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import Response

from services.gateway.http.page_modules import joined_modules
from services.gateway.http.problems import Problem, response

FOLDER = Path(__file__).parents[1] / "page"
INDEX = "index.html"
FIRST_MODULE = "app/main.js"
STYLES = ("style/base.css", "style/frame.css", "style/parts.css", "vendor/uPlot.min.css")
SCRIPT, STYLE = "all.js", "all.css"
"""What is joined of the modules, and of the style sheets in their order."""

KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".md": "text/plain; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
"""Media types by the end of a file's name; a file with another end is not served."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # It is asked for again, and answered with 304 where it is the same.
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page."""

    content: bytes
    kind: str
    tag: str


def page_files(folder: Path = FOLDER) -> dict[str, PageFile]:
    """Every file of the page by its path below the folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        kind = KINDS.get(path.suffix)
        if kind is not None and path.is_file() and not any(part.startswith(".") for part in name.split("/")):
            found[name] = _file(path.read_bytes(), kind)
    return found


def _file(content: bytes, kind: str) -> PageFile:
    return PageFile(content, kind, f'"{blake2b(content, digest_size=12).hexdigest()}"')


def joined_files(files: Mapping[str, PageFile]) -> dict[str, PageFile]:
    """The script and the style sheet that the first document names, made of the page's files. Raises PageBroken."""
    sources = {name: file.content.decode() for name, file in files.items() if name.endswith(".js")}
    style = b"".join(files[name].content.rstrip() + b"\n" for name in STYLES)
    script = joined_modules(sources, FIRST_MODULE).encode()
    return {SCRIPT: _file(script, KINDS[".js"]), STYLE: _file(style, KINDS[".css"])}


def add_front_page(app: FastAPI, folder: Path = FOLDER) -> None:
    """Adds the page. It answers before the log has been read, too."""
    files = page_files(folder)
    if FIRST_MODULE in files:
        files |= joined_files(files)

    async def get_front_page(request: Request) -> Response:
        return _answer(request, files, INDEX)

    async def get_page_file(request: Request) -> Response:
        return _answer(request, files, request.path_params["path"])

    # For browsers: no part of the API that OpenAPI describes.
    app.add_route("/", get_front_page, methods=["GET"])
    app.add_route("/page/{path:path}", get_page_file, methods=["GET"])


def _answer(request: Request, files: Mapping[str, PageFile], path: str) -> Response:
    """One file, to HEAD without its content."""
    found = files.get(path)
    if found is None:
        return response(Problem(404, "not_found", f"the page has no file {path[:200]!r}"), HEADERS)
    headers = {**HEADERS, "ETag": found.tag}
    if not {found.tag, "*"}.isdisjoint(_tags(request.headers.get("if-none-match", ""))):
        return Response(status_code=304, headers=headers)
    return Response(found.content, headers=headers, media_type=found.kind)


def _tags(text: str) -> list[str]:
    """What `If-None-Match` lists, weak or not."""
    return [tag.strip().removeprefix("W/") for tag in text.split(",")]
