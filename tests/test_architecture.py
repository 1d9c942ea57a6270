"""The rooms of the house: no imports in a circle, few files a folder, no modules by name."""

from __future__ import annotations

import ast
import graphlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:  # import-linter needs it there, too
    import tomli as tomllib

SOURCE = Path(__file__).parents[1] / "src" / "dask_strata"
MOST_AT_THE_ROOT = 8
MOST_IN_A_FOLDER = 16

#: `plugins` travels in pickles under its path. The scheduler's role makes these pickles; where one
#: is read, `plugins` makes the worker's or nanny's role.
ALLOWED = {("dask_strata.recorder.plugins", "dask_strata.recorder.roles")}


#: Public names in messages and in documented interfaces: a user types them.
NAMES_FOR_PEOPLE: tuple[str, ...] = (
    # `demo` passes the example's name to `python -m`, as a user would.
    "dask_strata.examples.image_processing",
    "or dask_strata.capture in Python",
)


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    """All imports between modules, those inside functions too; not those for types alone."""
    return grimp.build_graph("dask_strata", exclude_type_checking_imports=True)


def test_no_module_imports_itself_by_way_of_others(imports: grimp.ImportGraph) -> None:
    """A module can be read after those that it imports, wherever in it the imports are."""
    graph = {
        module: imports.find_modules_directly_imported_by(module) for module in imports.modules
    }
    assert len(graph) > 150
    order = list(graphlib.TopologicalSorter(graph).static_order())
    assert set(order) == imports.modules


def test_packages_do_not_import_each_other_in_a_circle(imports: grimp.ImportGraph) -> None:
    """The same holds for folders: of two packages in one folder, one builds on the other."""
    parents = {module.rpartition(".")[0] for module in imports.modules if "." in module}
    for parent in sorted(parents):
        children = {m for m in imports.modules if m.rpartition(".")[0] == parent}
        graph: dict[str, set[str]] = {child: set() for child in children}
        for module in imports.modules:
            start = _child(module, parent)
            if start not in children:
                continue
            for imported in imports.find_modules_directly_imported_by(module):
                end = _child(imported, parent)
                if end in children and end != start and (start, end) not in ALLOWED:
                    graph[start].add(end)
        list(graphlib.TopologicalSorter(graph).static_order())


def _child(module: str, parent: str) -> str:
    """Return the part of a module's name that is one level below its parent's."""
    depth = parent.count(".") + 2
    return ".".join(module.split(".")[:depth]) if module.startswith(f"{parent}.") else ""


def test_folders_have_few_files() -> None:
    """No more modules at the root, and in any folder, than a person takes in at a glance."""
    assert len(list(SOURCE.glob("*.py"))) <= MOST_AT_THE_ROOT
    folders = [path for path in SOURCE.rglob("*") if path.is_dir()]
    for folder in [path for path in folders if path.name != "cli"]:  # there, one a command
        assert len(list(folder.glob("*.py"))) <= MOST_IN_A_FOLDER, folder


def test_no_string_stands_for_one_of_our_modules(imports: grimp.ImportGraph) -> None:
    """A string with a module's name goes stale unnoticed when the module moves."""
    parts = {m.split(".")[1] for m in imports.modules if "." in m}
    name = re.compile(rf"\bdask_strata\.(?:{'|'.join(sorted(parts))})\b")
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}: {node.value}"
        for path in SOURCE.rglob("*.py")
        for node in _strings(ast.parse(path.read_text(encoding="utf-8")))
        if name.search(node.value)
    ]
    assert [line for line in found if not any(text in line for text in NAMES_FOR_PEOPLE)] == []


def _strings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield all strings, also parts of f-strings, but docstrings."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in docstrings:
            continue
        if isinstance(node.value, str):
            yield node


def test_the_layers_of_the_documentation_are_those_of_the_contract() -> None:
    """docs/architecture.md shows the layers that `lint-imports` checks."""
    root = SOURCE.parents[1]
    page = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    shown = page.partition("## Layers")[2].split("```")[1].split()
    contracts = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    layers = contracts["tool"]["importlinter"]["contracts"][0]["layers"]
    assert shown == " ".join(layers).replace("(", "").replace(")", "").split()
