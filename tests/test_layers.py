"""Who may import whom: tpubench knows backend and workloads, these know neither it nor each other."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("tpubench", "backend", "workloads")

#: Modules that run in the worker's process, where torch and jax live; all others are the parent's.
IN_WORKER = {
    "tpubench/check.py",
    "tpubench/flops.py",
    "tpubench/forecast/compiler.py",
    "tpubench/ops/latitude.py",
    "tpubench/ops/opinfo.py",
    "tpubench/ops/sample.py",
    "tpubench/ops/worker.py",
    "tpubench/step.py",
    "tpubench/worker.py",
}


def sources(package):
    return sorted((ROOT / package).rglob("*.py"))


def imports(path, *, top_level_only):
    """The names of the packages that ``path`` imports."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield node.module.partition(".")[0]


@pytest.mark.parametrize(
    ("package", "forbidden"), [("backend", {"tpubench", "workloads"}), ("workloads", {"tpubench", "backend"})]
)
def test_the_lower_layers_know_nothing_of_the_others(package, forbidden):
    for path in sources(package):
        assert not forbidden & set(imports(path, top_level_only=False)), path


def test_the_parents_modules_import_neither_torch_nor_jax_anywhere():
    for path in sources("tpubench"):
        if str(path.relative_to(ROOT)) in IN_WORKER:
            continue
        tree = ast.parse(path.read_text())
        guarded = {
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if node in guarded or not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
            assert not {n.partition(".")[0] for n in names} & {"torch", "jax"}, f"{path}:{node.lineno}"


@pytest.mark.parametrize(
    "name",
    [
        "backend/embedded/backend.py",
        "backend/native.py",
        "backend/torchxla.py",
        "backend/tpuhost.py",
        "workloads/resnet.py",
    ],
)
def test_what_the_parent_asks_imports_torch_and_jax_only_when_it_executes(name):
    assert not {"torch", "jax"} & set(imports(ROOT / name, top_level_only=True))


def test_modules_are_short():
    for package in PACKAGES:
        for path in sources(package):
            assert len(path.read_text().splitlines()) <= 300, path
