"""The page's modules joined into one script, run by Node beside the modules themselves."""

import json
import re
import shutil
import subprocess

import pytest

from services.gateway.http.page_modules import PageBroken, joined_modules

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="no Node here")

SOURCES = {
    "app/main.js": 'import { twice, Box } from "./more.js";\nimport whole from "../vendor/small.js";\n'
    'import {\n  kept,\n  passed as got,\n} from "./lib.js";\n'
    "console.log(JSON.stringify([twice(4), new Box().size, whole(3), kept, got, later()]));\n"
    "function later() { return 5; }\n",
    "app/more.js": '// A module.\nimport { unit } from "./lib.js";\nexport const twice = (n) => n * 2 * unit;\n'
    "export class Box { size = 7; }\nexport async function unused() { return twice(1); }\n",
    "app/lib.js": 'import { n as inner } from "../vendor/min.js";\nexport const unit = 1;\n'
    "export {\n  inner as kept,\n};\n"
    'export { n as passed } from "../vendor/min.js";\n',
    "vendor/min.js": "const a=11;function b(){}export{a as n,b as m};",
    "vendor/small.js": "var q=10;export default function(s){return s*q}",
}
SAID = [8, 7, 30, 11, 11, 5]


def run(folder, script):
    said = subprocess.run(["node", folder / script], capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


@needs_node
def test_the_joined_script_does_what_the_modules_do(tmp_path):
    (tmp_path / "package.json").write_text('{"type": "module"}')
    for name, source in SOURCES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source)
    (tmp_path / "all.js").write_text(joined_modules(SOURCES, "app/main.js"))

    assert run(tmp_path, "app/main.js") == SAID
    assert run(tmp_path, "all.js") == SAID


def test_each_module_comes_once_and_behind_what_it_imports():
    order = re.findall(r"^// (\S+\.js)$", joined_modules(SOURCES, "app/main.js"), re.MULTILINE)

    assert order == ["vendor/min.js", "app/lib.js", "app/more.js", "vendor/small.js", "app/main.js"]


def test_what_nobody_imports_is_given_to_nobody():
    assert "unused" in SOURCES["app/more.js"]
    assert "return { twice: twice, Box: Box };" in joined_modules(SOURCES, "app/main.js")


@pytest.mark.parametrize(
    ("path", "source", "why"),
    [
        ("vendor/min.js", 'import { twice } from "../app/more.js";', "import each other: .*more.js -> .*more.js"),
        ("app/lib.js", 'import { a } from "./gone.js";', "app/lib.js imports app/gone.js, which is not there"),
        ("vendor/min.js", "export{a as m};", "vendor/min.js exports no n"),
    ],
)
def test_modules_that_cannot_be_joined_are_named(path, source, why):
    with pytest.raises(PageBroken, match=why):
        joined_modules({**SOURCES, path: source}, "app/main.js")
