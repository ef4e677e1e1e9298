"""Keeps the page's libraries as files: from npm by name, version and integrity (package-lock.json), each with its hash.

`npm ci` fetches and checks them. What is changed in a file is said in `vendored.json`: names of modules become files
beside it, since a browser knows no others, and links to source maps that are not here go.
"""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "services/gateway/page/vendor"
TESTED_WITH = HERE / "vendor"
INDEX = "vendored.json"
CHANGES = "module names are files beside it; no link to a source map"


@dataclass(frozen=True, slots=True)
class Library:
    """A file of a package, and under which name it is kept."""

    package: str
    path: str
    file: str


LIBRARIES = {
    PAGE: (
        Library("preact", "dist/preact.mjs", "preact.js"),
        Library("preact", "hooks/dist/hooks.mjs", "preact-hooks.js"),
        Library("@preact/signals-core", "dist/signals-core.mjs", "preact-signals-core.js"),
        Library("@preact/signals", "dist/signals.mjs", "preact-signals.js"),
        Library("htm", "dist/htm.mjs", "htm.js"),
        Library("uplot", "dist/uPlot.esm.js", "uPlot.js"),
        Library("uplot", "dist/uPlot.min.css", "uPlot.min.css"),
    ),
    TESTED_WITH: (Library("axe-core", "axe.min.js", "axe.min.js"),),
}
"""By the folder where they are kept: what the page is made of, and what tests alone use."""

MODULES = {
    "preact": "./preact.js",
    "preact/hooks": "./preact-hooks.js",
    "@preact/signals-core": "./preact-signals-core.js",
}
_IMPORT = re.compile(r"""(\b(?:from|import)\s*)(["'])([a-z@][a-z@/-]*)\2""")


@dataclass(frozen=True, slots=True)
class Kept:
    """What is known of a kept file. `sha256`: of the file as it is kept."""

    file: str
    name: str
    version: str
    licence: str
    integrity: str
    path: str
    changes: str
    sha256: str


def as_kept(library: Library, source: str) -> str:
    """The text that a browser reads."""
    if library.file.endswith(".js"):
        source = _IMPORT.sub(lambda found: f"{found[1]}{found[2]}{MODULES[found[3]]}{found[2]}", source)
        source = re.sub(r"^//# sourceMappingURL=.*\n?", "", source, flags=re.MULTILINE)
    return source if source.endswith("\n") else source + "\n"


def files_of(libraries: tuple[Library, ...], modules: Path) -> dict[str, bytes]:
    """The files of a folder, with the list of them and the licences. `modules`: where npm has put the packages."""
    locked = json.loads((HERE / "package-lock.json").read_text())["packages"]
    files: dict[str, bytes] = {}
    rows = []
    for library in libraries:
        folder = modules / library.package
        about = locked[f"node_modules/{library.package}"]
        source = (folder / library.path).read_text()
        data = as_kept(library, source).encode()
        files[library.file] = data
        changes = CHANGES if data.decode() != source else ""
        rows.append(
            Kept(
                library.file,
                library.package,
                about["version"],
                about["license"],
                about["integrity"],
                library.path,
                changes,
                sha256(data).hexdigest(),
            )
        )
        for licence in sorted(folder.glob("LICENSE*")):
            name = library.package.removeprefix("@").replace("/", "-") + licence.name.removeprefix("LICENSE").lower()
            files[f"{name.removesuffix('.txt')}.licence.txt"] = licence.read_bytes()
    files[INDEX] = (json.dumps([asdict(row) for row in rows], indent=2) + "\n").encode()
    return files


def main() -> None:
    """Writes the files, or with `--check` says which are other than npm has them."""
    if shutil.which("npm") is None:
        sys.exit("npm is needed to fetch the libraries of the page (Debian: apt-get install npm)")
    subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=HERE, check=True)
    wrong = []
    for folder, libraries in LIBRARIES.items():
        files = files_of(libraries, HERE / "node_modules")
        if "--check" in sys.argv:
            kept = {path.name: path.read_bytes() for path in folder.iterdir()}
            wrong += [str(folder / name) for name in sorted({*files, *kept}) if files.get(name) != kept.get(name)]
            continue
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, data in files.items():
            (folder / name).write_bytes(data)
    if wrong:
        sys.exit("other than npm has them: " + ", ".join(wrong))


if __name__ == "__main__":
    main()
