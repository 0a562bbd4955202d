"""A step over shapes. There is no way back from it, so that each test has a process of its own."""

import json
import subprocess
import sys
import textwrap

import pytest

STEP = """
    import json, sys, torch
    from backend.embedded.device import activate
    from backend.embedded.cache import COUNTERS
    from backend.embedded.mode import set_mode
    from backend.embedded.shadow import shadow_for
    from backend.embedded.buffer import synchronize
    from backend.embedded.errors import ValuesUnknown

    device, shadow = activate(), None
    if sys.argv[1] == "shadow":
        shadow = shadow_for("tpu")
    set_mode(sys.argv[2] if sys.argv[2] != "compile" else "eager")
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 4)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.ones(32, 8, device=device)
    run = torch.compile(model, backend="pjrt", fullgraph=True) if sys.argv[2] == "compile" else model
    update = torch.compile(optimizer.step, backend="pjrt") if sys.argv[2] == "compile" else optimizer.step

    def step():
        optimizer.zero_grad(set_to_none=True)
        run(x).square().mean().backward()
        update()

    for _ in range(2):
        step()
    if shadow is None:
        synchronize()
        before = COUNTERS.launches
        step()
        synchronize()
        print(json.dumps({"launches": COUNTERS.launches - before}))
    else:
        if sys.argv[2] == "eager-fused":
            from backend.embedded.mode import MODE
            MODE.recording.flush()
        shadow.launches.clear()
        step()
        programs = [(p.name, n.count, n.beside_bytes, p.stablehlo()[0]) for p, n in shadow.launches.items()]
        print(json.dumps({"launches": sum(p[1] for p in programs), "programs": programs}))
"""


def run(code, *arguments):
    got = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments], capture_output=True, text=True, timeout=300
    )
    assert got.returncode == 0, got.stderr
    return json.loads(got.stdout)


@pytest.mark.parametrize("mode", ["eager", "eager-fused", "compile"])
def test_a_step_over_shapes_launches_what_a_step_over_values_does(mode):
    real, shadow = run(STEP, "real", mode), run(STEP, "shadow", mode)
    assert shadow["launches"] == real["launches"] > 0
    assert all(text.startswith("module @jit_") for _, _, _, text in shadow["programs"])
    assert any("dot_general" in text for _, _, _, text in shadow["programs"])


def test_what_is_held_beside_a_programs_arguments_is_known():
    """Of the last weight's gradient, 16x4: the other parameters, both moments of all, the input, what is kept."""
    programs = run(STEP, "shadow", "eager")["programs"]
    parameters = (8 * 16 + 16 + 16 * 4 + 4) * 4
    assert max(beside for _, _, beside, _ in programs) > 3 * parameters
    assert all(beside >= 2 * parameters for name, _, beside, _ in programs if name == "aten_mm")


def test_no_memory_is_taken():
    code = """
        import json, torch
        from backend.embedded.device import activate
        from backend.embedded.shadow import shadow_for
        device = activate()
        shadow = shadow_for("tpu")
        x = torch.empty(2**22, 2**20, device=device)
        y = (x @ x.t()).sum()
        print(json.dumps({"live": shadow.live_bytes, "launches": len(shadow.launches), "shape": list(y.shape)}))
    """
    found = run(code)
    assert found["live"] >= 2**42 * 4 and found["launches"] >= 2 and found["shape"] == []


@pytest.mark.parametrize("read", ["x.item()", "x.cpu()", "x.reshape(1).nonzero()", "print(x)", "bool(x == 1)"])
def test_a_read_of_values_is_refused_by_name(read):
    code = f"""
        import json, torch
        from backend.embedded.device import activate
        from backend.embedded.shadow import shadow_for
        x = torch.ones((), device=activate())
        shadow_for("tpu")
        x = x + 1
        try:
            {read}
        except RuntimeError as error:
            print(json.dumps([type(error).__name__, str(error)]))
    """
    name, message = run(code)
    assert name == "ValuesUnknown" and "a forecast has none" in message


def test_arrays_made_before_are_taken_as_inputs():
    code = """
        import json, torch
        from backend.embedded.device import activate
        from backend.embedded.shadow import shadow_for
        x = torch.ones(3, device=activate())
        shadow = shadow_for("tpu")
        y = x + x
        print(json.dumps([p.name for p in shadow.launches]))
    """
    assert run(code) == ["aten_add_Tensor"]


def test_a_pooled_maximum_is_one_window_operation_on_a_tpu():
    """Nine compared slices are fused into the convolution that reads them, which makes each several times over."""
    code = """
        import json, torch
        from backend.embedded.device import activate
        from backend.embedded.shadow import hlo, shadow_for
        x = torch.ones(1, 2, 9, 9, device=activate())
        shadow = shadow_for("tpu")
        shadow.launches.clear()
        run = torch.compile(lambda x: torch.nn.functional.max_pool2d(x, 3, 2, 1), backend="pjrt", fullgraph=True)
        run(x)
        (program,) = shadow.launches
        plain, named = program.stablehlo()
        print(json.dumps([plain, named, hlo(plain)]))
    """
    plain, named, text = run(code)
    assert plain.count("stablehlo.reduce_window") == 1 and "max_pool2d_with_indices" in named
    assert "reduce-window(" in text and text.startswith("HloModule")
