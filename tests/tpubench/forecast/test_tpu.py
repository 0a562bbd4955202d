"""Forecasts by libtpu itself. What is held to is the mathematics, never a time."""

import importlib.util
import json

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed (pip install 'tpubench[tpu]')"
    ),
]


def rows(cli, tmp_path, *arguments):
    got = cli("forecast", "resnet", "--cache-dir", str(tmp_path), "--format", "json", *arguments, timeout=900)
    assert got.returncode == 0, got.stderr
    return json.loads(got.stdout)


def test_a_step_on_every_chip(cli, tmp_path):
    chips = "v2,v3,v4,v5e,v5p,v6e,v7x"
    found = {row["chip"]: row for row in rows(cli, tmp_path, "--size", "tiny", "--chip", chips)}
    assert list(found) == chips.split(",")
    for row in found.values():
        assert row["status"] == "ok" and row["fits"] is True
        assert 0 < row["low_s"] <= row["high_s"]
        # The compiler multiplies no padding, which at this size is a third of the model's count.
        assert 0.5 < row["flops"] / row["model_flops"] <= 1
    gib = {chip: row["capacity_bytes"] / 2**30 for chip, row in found.items()}
    assert 15 < gib["v5e"] < 16 and 94 < gib["v5p"] < 96 and 31 < gib["v6e"] < 32


def test_eager_is_no_faster_than_compile_and_moves_more(cli, tmp_path):
    options = ("--size", "tiny", "--chip", "v5e", "--phase", "infer", "--mode", "compile,eager,eager-fused")
    compiled, eager, fused = rows(cli, tmp_path, *options)
    assert eager["low_s"] > compiled["low_s"] and eager["high_s"] > compiled["high_s"]
    assert eager["hbm_bytes"] > compiled["hbm_bytes"]
    assert eager["flops"] == pytest.approx(compiled["flops"], rel=0.01)
    assert fused["launches"] == 1


def test_a_larger_batch_takes_more_of_everything(cli, tmp_path):
    options = ("--size", "small", "--phase", "infer", "--chip", "v5e", "--dtype", "bfloat16", "--batch", "16,64,256")
    found = rows(cli, tmp_path, *options)
    for name in ("flops", "hbm_bytes", "memory_bytes", "low_s", "high_s"):
        values = [row[name] for row in found]
        assert values == sorted(values) and values[0] < values[-1], name
    assert found[2]["flops"] == pytest.approx(4 * found[1]["flops"], rel=0.01)


def test_what_the_compiler_finds_too_large_is_answered_with_no(cli, tmp_path):
    (row,) = rows(
        cli, tmp_path, "--size", "full", "--phase", "infer", "--chip", "v5e", "--batch", "65536", "--timeout", "600"
    )
    assert row["fits"] is False and row["status"] == "oom"
    assert row["low_s"] is None
