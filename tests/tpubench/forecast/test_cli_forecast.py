"""``tpubench forecast`` as a user sees it; the TPU compiler is a fake, the step that it compiles is real."""

import json

import pytest


@pytest.fixture
def forecast(cli, compiler_python, tmp_path):
    def run(*arguments):
        common = ("--tpu-python", compiler_python, "--cache-dir", str(tmp_path / "kept"))
        return cli("forecast", "resnet", "--size", "tiny", *common, *arguments)

    return run


def test_a_row_a_chip_with_ranges_and_what_they_are(forecast):
    got = forecast("--chip", "v5e,v7x", "--phase", "infer")
    assert got.returncode == 0, got.stderr
    lines = got.stdout.splitlines()
    assert lines[0] == "resnet/tiny, infer, batch 8, float32"
    assert lines[1].split("  ")[0] == "chip" and "step ms" in lines[1] and "USD/1M images" in lines[1]
    assert [line.split()[:3] for line in lines[3:5]] == [["v5e", "compile", "yes"], ["v7x", "compile", "yes"]]
    assert "[v7x compile] one of the chip's 2 devices: half its peak, memory and price" in got.stdout
    assert "compiled by libtpu 0.0.42.1, jax 0.10.2" in got.stdout
    assert lines[-1].startswith("  predicted, not measured: no TPU ran this.")


def test_json_has_every_program_and_adds_up(forecast):
    got = forecast("--chip", "v5e", "--format", "json", "--launch-us", "100", "--price", "3.6")
    (row,) = json.loads(got.stdout)
    assert row["predicted"] is True and row["status"] == "ok" and row["programs"] == row["launches"] == 3
    assert [part["program"].split("_")[0] for part in row["parts"]] == ["forward", "backward", "graph"]
    assert row["low_s"] == pytest.approx(3 * 2 * 4096**3 / 197e12)
    assert row["high_s"] == pytest.approx(sum(part["high_s"] for part in row["parts"]) + 3 * 100e-6)
    assert row["usd_low"] == pytest.approx(row["low_s"] * 0.001)
    assert row["items_per_s_high"] == pytest.approx(8 / row["low_s"])
    # The optimizer's program is compiled with nothing else held, backward beside the momentum.
    assert row["memory_bytes"] == max(2**26 + 2**25 + part["beside_bytes"] for part in row["parts"])
    assert row["fits"] is True and row["capacity_bytes"] == int(15.75 * 2**30)


def test_a_crash_of_the_compiler_is_a_row_and_not_the_end(forecast, monkeypatch):
    monkeypatch.setenv("FAKE_BEHAVIOUR", '{"jit_backward": "die"}')
    got = forecast("--chip", "v5e,v6e", "--mode", "compile,eager", "--phase", "train")
    assert got.returncode == 0 and "Traceback" not in got.stderr
    rows = [line.split()[:3] for line in got.stdout.splitlines()[3:7]]
    # A row without its backward has no greatest time, and is not said to fit.
    assert rows == [["v5e", "compile", "-"], ["v6e", "compile", "-"], ["v5e", "eager", "yes"], ["v6e", "eager", "yes"]]
    assert got.stdout.splitlines()[3].count("> ") == 3
    why = "backward_1: the TPU compiler was ended by SIGSEGV; not compiled: its least time is its roofline's"
    assert f"[v5e compile, v6e compile] {why}" in got.stdout


def test_what_the_compiler_does_not_get_done_it_does_with_less_effort(forecast, monkeypatch):
    monkeypatch.setenv("FAKE_BEHAVIOUR", '{"jit_backward": "die"}')
    monkeypatch.setenv("FAKE_LEAST", '{"jit_backward": "compile"}')
    (row,) = json.loads(forecast("--chip", "v5e", "--format", "json").stdout)
    assert row["status"] == "ok" and row["fits"] is True and row["memory_whole"] is True
    assert [part["how"] for part in row["parts"]] == ["compiled", "compiled with the least effort", "compiled"]
    assert row["low_s"] > 0 and row["high_s"] is None, "cycles of least effort are not those of the program that runs"
    assert any("SIGSEGV; compiled with the least effort" in note for note in row["notes"])


def test_quick_compiles_nothing_and_gives_the_roofline(forecast, asked):
    (row,) = json.loads(forecast("--chip", "v5e", "--quick", "--format", "json").stdout)
    assert [line for line in asked() if "stablehlo" in line and "probe" not in line] == []
    assert row["status"] == "ok" and row["fits"] is None and row["high_s"] is None and row["memory_whole"] is False
    # Nothing is optimised yet: the products are those that the model asks for, but for padding.
    assert 0.5 < row["flops"] / row["model_flops"] <= 1
    assert row["low_s"] > row["flops"] / 197e12


def test_what_does_not_fit_says_by_how_much_and_is_an_answer(forecast, monkeypatch):
    monkeypatch.setenv("FAKE_BEHAVIOUR", f'{{"jit_forward": "{2**34}"}}')
    got = forecast("--chip", "v5e")
    assert got.returncode == 0
    assert got.stdout.splitlines()[3].split()[:3] == ["v5e", "compile", "no"]
    assert (
        "v5e compile: oom: the step holds 0.34 GiB more than a program can have: take a smaller --batch" in got.stdout
    )


def test_the_compilers_own_words_on_memory_are_kept(forecast, monkeypatch):
    monkeypatch.setenv("FAKE_BEHAVIOUR", '{"jit_forward": "oom"}')
    got = forecast("--chip", "v5e")
    assert got.returncode == 0 and "(23.51G) exceeds available HBM (15.75G)" in got.stdout


def test_eager_sums_distinct_programs_as_often_as_they_are_launched(forecast, asked):
    got = forecast("--chip", "v5e", "--mode", "eager", "--format", "json")
    (row,) = json.loads(got.stdout)
    assert row["launches"] > row["programs"] == len(row["parts"]) > 20
    assert row["launches"] == sum(part["launches"] for part in row["parts"])
    assert row["low_s"] == pytest.approx(sum(part["launches"] * part["low_s"] for part in row["parts"]))
    compiled = [line for line in asked() if "stablehlo" in line]
    assert len(compiled) == row["programs"] + 1, "each distinct program once, and the question for the memory"


def test_the_second_forecast_asks_nobody(forecast, asked):
    first = forecast("--chip", "v5e")
    count = len(asked())
    assert forecast("--chip", "v5e").stdout == first.stdout and len(asked()) == count


def test_heaviest_ops(forecast):
    got = forecast("--chip", "v5e", "--top", "2", "--format", "md")
    assert "  heaviest on v5e, compile:" in got.stdout
    assert got.stdout.count("product  ") == 2 and "| v5e | compile | yes |" in got.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--chip", "v9"), "unknown TPU 'v9': "),
        (("--chip", "H200"), "unknown TPU 'H200': "),
        (("--mode", "lazy"), "--mode cannot be 'lazy': a forecast is of eager, eager-fused, compile"),
        (("--format", "xml"), "unknown format 'xml'"),
        (("--price", "dear"), "--price cannot be 'dear'"),
        (("--cache-dir", "/proc/none"), "cannot write to '/proc/none'"),
        (("--tpu-python", "/bin/false"), "'/bin/false' cannot be asked for its packages"),
    ],
)
def test_a_mistake_is_one_line(forecast, arguments, says):
    got = forecast(*arguments)
    assert got.returncode == 2 and got.stdout == ""
    assert got.stderr.startswith("tpubench: error: ") and says in got.stderr and got.stderr.count("\n") == 1
