"""``tpubench list`` as a user sees it, on a real subprocess."""

import pytest

FAKE = """\
  fake: for tests
    --mode eager     yes
    --mode compile   yes
    --mode homeless  yes
    --mode lazy      no: this backend is not lazy
    --device cpu     yes
"""
RESNET = """\
  resnet: ResNet-18 and ResNet-50, image classification (train, infer)
    tiny      ResNet-18 of an eighth of the width, 32x32, 10 classes, batch 8
    small     ResNet-18, 64x64, batch 16
    resnet18  ResNet-18, 224x224, batch 32
    full      ResNet-50, 224x224, batch 32
"""


def sections(text):
    """``{"workloads": ..., "backends": ...}``: the lines below each headline."""
    assert text.startswith("workloads\n") and text.count("\nbackends\n") == 1
    workloads, backends = text.removeprefix("workloads\n").split("\nbackends\n")
    return workloads, backends


def blocks(text):
    """The block of each name."""
    found = {}
    for line in text.splitlines(keepends=True):
        if not line.startswith("    ") and line.strip():
            name = line.split(":")[0].strip()
            found[name] = ""
        if line.strip():
            found[name] += line
    return found


def test_what_is_on_offer(cli, plugin):
    got = cli("list")
    assert got.returncode == 0 and got.stderr == ""
    workloads, backends = map(blocks, sections(got.stdout))
    assert list(workloads) == sorted(workloads) and workloads["resnet"] == RESNET
    assert list(backends) == ["embedded", "fake", "torch", "torch-xla"] and backends["fake"] == FAKE


def test_every_mode_and_device_is_there_with_yes_or_why_not(cli):
    from backend import registry

    _, backends = map(blocks, sections(cli("list").stdout))
    for name in registry.names():
        backend = registry.load(name)
        offered = {f"--mode {m}": why for m, why in backend.modes().items()}
        offered |= {f"--device {d}": why for d, why in backend.devices().items()}
        lines = [line.split(maxsplit=2) for line in backends[name].splitlines()[1:]]
        assert {f"{option} {value}": answer for option, value, answer in lines} == {
            option: f"no: {why}" if why else "yes" for option, why in offered.items()
        }


def test_modes_of_the_design_are_named_by_our_backends(cli):
    _, backends = map(blocks, sections(cli("list").stdout))
    for name in ("embedded", "torch", "torch-xla"):
        for mode in ("eager", "eager-blocking", "eager-fused", "lazy", "compile"):
            assert f"    --mode {mode} " in backends[name]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise ImportError('no such chip')", "the backend 'broken' (broken_plugin:B) does not import: no such chip"),
        ("class B: pass", "the backend 'broken' (broken_plugin:B) has no name, summary, modes, "),
        (
            "from backend.native import Native\nclass B(Native):\n    def modes(self): raise OSError('offline')",
            "the backend 'broken' cannot say what it does: OSError: offline: repair or uninstall the package",
        ),
    ],
)
def test_a_broken_plug_in_is_a_line_and_hides_nothing_else(cli, plugin, source, says):
    (plugin / "broken_plugin.py").write_text(source)
    info = plugin / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tpubench.backends]\nbroken = broken_plugin:B\n")
    got = cli("list")
    assert got.returncode == 0 and got.stderr == ""
    _, backends = map(blocks, sections(got.stdout))
    assert says in backends["broken"] and len(backends["broken"].splitlines()) == 1
    assert backends["fake"] == FAKE and "torch" in backends
    used = cli("run", "load", "--backend", "broken")
    assert used.returncode == 2 and used.stderr.startswith("tpubench: error: ") and says in used.stderr
