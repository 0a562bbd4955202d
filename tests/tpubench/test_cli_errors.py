"""Each mistake a user can make: one line that says what, which value and the remedy, exit code 2, no traceback."""

import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from records import make_record

from tpubench import store


def one_line(result, code=2):
    assert result.returncode == code, result
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, result.stderr
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "resnot"), "unknown workload 'resnot': did you mean 'resnet'? one of "),
        (("run", "resnet", "--backend", "embeded"), "unknown backend 'embeded': did you mean 'embedded'?"),
        (("run", "resnet", "--mode", "eagr"), "unknown mode 'eagr': did you mean 'eager'?"),
        (("run", "resnet", "--size", "huge"), "unknown size 'huge': one of full, resnet18, small, tiny"),
        (("run", "resnet", "--dtype", "int3"), "unknown dtype 'int3'"),
        (("run", "resnet", "--device", "quantum"), "unknown device 'quantum'"),
        (("run", "resnet", "--phase", "dream"), "unknown phase 'dream': one of infer, train"),
        (("run", "resnet", "--optimizer", "lion"), "unknown optimizer 'lion': one of adamw, sgd"),
        (
            ("run", "resnet", "--optimizer", "sgd", "--phase", "infer"),
            "--optimizer cannot be 'sgd': phase infer has",
        ),
        (("run", "resnet", "--data", "disk"), "unknown place for data 'disk': one of device, host"),
        (("run", "resnet", "--seq-len", "128"), "--seq-len cannot be '128': resnet works on no sequences"),
        (("run", "resnet", "--shape", "8x8"), "--shape cannot be '8x8': resnet has named sizes only"),
        (("run", "resnet", "--batch", "0"), "--batch cannot be '0': give whole numbers of 1 or more"),
        (("run", "resnet", "--batch", "eight"), "--batch cannot be 'eight'"),
        (("run", "resnet", "--steps", "0"), "--steps cannot be '0'"),
        (("run", "resnet", "--seed", "-1"), "--seed cannot be '-1'"),
        (("run", "resnet", "--mode", "eager,,compile"), "--mode cannot be 'eager,,compile'"),
        (("run", "resnet", "--chip", "v99"), "unknown chip 'v99'"),
        (("run", "resnet", "--price", "cheap"), "--price cannot be 'cheap': give USD per chip-hour"),
        (("run", "resnet", "--out", "/proc/none"), "cannot write to '/proc/none'"),
        (("compare", "none/*.parquet"), "no result file matches 'none/*.parquet': run `tpubench run` first"),
        (("compare", "."), "no result file matches '.'"),
        (("trace", "resnet", "--mode", "eager,compile"), "give one mode"),
        (("trace",), "there is no folder 'traces': capture one"),
        (("trace", "--dir", "."), "no capture is in '.'"),
        (("trace", "resnet", "--format", "xml"), "unknown format 'xml'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_one_line_with_the_remedy(cli, arguments, says):
    line = one_line(cli(*arguments))
    assert line.startswith("tpubench: error: ") and says in line


@pytest.fixture
def result(tmp_path):
    """A folder with one good record."""
    return store.write(make_record(), tmp_path / "results")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--baseline", "jax:jit"), "no row matches the baseline 'jax:jit': one of embedded:eager"),
        (("--baseline", "colour=red"), "unknown field of a record in --baseline 'colour': one of backend, batch"),
        (("--baseline", "mode="), "--baseline cannot be 'mode='"),
        (("--where", "mode=lazy"), "--where 'mode=lazy' keeps none of 1 records"),
        (("--across", "colour"), "unknown field of the work in --across 'colour': one of batch"),
        (("--by", "mode"), "--by cannot be 'mode': name two axes"),
        (("--by", "batch,mode", "--show", "speed"), "unknown number to show 'speed': one of compile"),
        (("--fail-if-slower", "5"), "--fail-if-slower cannot be '5': give a percentage with its sign: 5%"),
        (("--against", "nowhere"), "no result file matches 'nowhere'"),
        (("--format", "xml"), "unknown format 'xml': one of csv, json, md, table"),
        (("--plot", "plot.doc"), "--plot cannot be 'plot.doc'"),
        (("--plot", "none/plot.png"), "cannot write to 'none'"),
        (("--price", "cheap"), "--price cannot be 'cheap'"),
    ],
)
def test_a_mistake_in_comparing_is_one_line(cli, result, arguments, says):
    assert says in one_line(cli("compare", "results", *arguments))


def test_a_file_that_is_no_parquet_is_named_and_the_others_are_compared(cli, result, tmp_path):
    (tmp_path / "results" / "text.parquet").write_text("hello")
    got = cli("compare", "results/*.parquet")
    assert got.returncode == 0 and "embedded:eager" in got.stdout
    assert "passed over: 'results/text.parquet' is no tpubench record" in one_line(got, 0)


def test_a_parquet_of_another_schema_is_named(cli, tmp_path, result):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    line = one_line(cli("compare", "other.parquet"))
    assert "'other.parquet' is no tpubench record (a parquet file of something else)" in line
    newer = pq.read_table(result).replace_schema_metadata({b"tpubench.schema": b"99"})
    pq.write_table(newer, tmp_path / "newer.parquet")
    assert "record schema 99, this tpubench reads 1 to 3: upgrade tpubench" in one_line(cli("compare", "newer.parquet"))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ("run", "resnot"),
            "unknown workload 'resnot': did you mean 'resnet'? one of attention, conv, dispatch, dlrm, "
            "elementwise, embedding, hbm-copy, layernorm, llama, matmul, mingpt, qwen, resnet, softmax, unet",
        ),
        (("run", "resnet", "--size", "huge"), "unknown size 'huge': one of full, resnet18, small, tiny"),
        (("run", "resnet", "--phase", "dream"), "unknown phase 'dream': one of infer, train"),
        (
            ("run", "resnet", "--steps", "0"),
            "--steps cannot be '0': give 1 or more, below 2**63; 30 make a 95 % interval worth having",
        ),
        (("run", "resnet", "--seed", str(2**63)), f"--seed cannot be '{2**63}': give 0 or more, below 2**63"),
        (("run", "resnet", "--size", ""), "--size cannot be '': separate names with single commas"),
        (("frobnicate",), "No such command 'frobnicate': see `tpubench --help`"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_the_whole_line(cli, arguments, line):
    """Golden text of mistakes that depend on nothing of this machine."""
    got = cli(*arguments)
    assert (got.returncode, got.stdout, got.stderr) == (2, "", f"tpubench: error: {line}\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "resnet", "--colour", "red"), "--colour"),
        (("run",), "Missing argument"),
        (("run", "resnet", "--steps", "abc"), "Invalid value for '--steps'"),
        (("run", "resnet", "--steps"), "'--steps' requires an argument"),
        (("run", "resnet", "--timeout", "nan"), "Invalid value for '--timeout'"),
        (("run", "resnet", "--timeout", "0"), "Invalid value for '--timeout'"),
        (("run", "resnet", "--peak-tflops", "nan"), "Invalid value for '--peak-tflops'"),
        (("run", "resnet", "vgg"), "vgg"),
        (("compare",), "Missing argument"),
        (("--colour",), "--colour"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_options_that_do_not_parse_are_one_line_too(cli, arguments, says):
    line = one_line(cli(*arguments))
    assert line.startswith("tpubench: error: ") and says in line and line.endswith("--help`")


def test_without_a_command_it_says_what_there_is(cli):
    got = cli()
    assert got.returncode == 2 and got.stdout == ""
    assert "Usage: " in got.stderr and all(f"  {name} " in got.stderr for name in ("run", "compare", "trace", "list"))


def test_a_fault_of_ours_is_one_line_and_debug_shows_it(tmp_path):
    broken = (
        "import tpubench.commands.list as c, sys\n"
        "def fail(pythons): raise KeyError('boom')\n"
        "c.list_all = fail\n"
        "sys.argv = ['tpubench', 'list'] + sys.argv[1:]\n"
        "from tpubench.cli import main; main()\n"
    )

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-c", broken, *arguments], capture_output=True, text=True, env=dict(os.environ)
        )

    assert "internal error: KeyError: 'boom'; run again with --debug for the traceback" in one_line(run(), 1)
    shown = run("--debug")
    assert shown.returncode == 1 and "Traceback" in shown.stderr


def test_a_reader_that_leaves_is_no_error(tmp_path):
    got = subprocess.run(
        f"{sys.executable} -P -m tpubench list | head -1", shell=True, capture_output=True, text=True, cwd=tmp_path
    )
    assert got.stdout == "workloads\n" and got.stderr == ""
