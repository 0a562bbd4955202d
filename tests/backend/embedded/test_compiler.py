"""torch.compile with the backend ``pjrt``, beyond training."""

import pytest
import torch

from backend.embedded.cache import COUNTERS


@pytest.fixture(autouse=True)
def _device(pjrt):
    torch._dynamo.reset()


def compiled(function, **options):
    return torch.compile(function, backend="pjrt", **{"dynamic": False, **options})


def test_a_graph_is_one_launch():
    run = compiled(lambda x: (x.sin() + x.cos()).sum())
    x = torch.rand(8, device="pjrt")
    run(x)
    before = COUNTERS.launches
    run(x)
    assert COUNTERS.launches == before + 1


def test_inputs_that_are_views_and_outputs_with_strides():
    base = torch.arange(24.0).reshape(4, 6)
    run = compiled(lambda x: (x * 2, (x + 1).t(), x.sum()))
    got = run(base.to("pjrt").t()[1:4])
    expected = [base.t()[1:4] * 2, (base.t()[1:4] + 1).t(), base.t()[1:4].sum()]
    for a, b in zip(got, expected, strict=True):
        assert torch.equal(a.cpu(), b) and a.stride() == b.stride()


def test_inputs_are_written():
    def step(x, y):
        x.add_(1)
        y[1:].mul_(2)
        return x + 1

    x, y = torch.zeros(3, device="pjrt"), torch.ones(4, device="pjrt")
    seen = x.view(3)
    result = compiled(step)(x, y)
    assert seen.tolist() == [1, 1, 1] and y.tolist() == [1, 2, 2, 2] and result.tolist() == [2, 2, 2]


def test_an_output_may_alias_an_input():
    x = torch.zeros(4, device="pjrt")
    view = compiled(lambda v: v.view(2, 2))(x)
    view.add_(3)
    assert x.tolist() == [3, 3, 3, 3]


def test_a_graph_break_works():
    def broken(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    assert compiled(broken)(torch.ones(2, device="pjrt")).tolist() == [4, 4]


def test_dropout_follows_the_seed():
    run = compiled(lambda x: torch.nn.functional.dropout(x, 0.5))
    x = torch.ones(256, device="pjrt")
    torch.manual_seed(3)
    first, second = run(x).cpu(), run(x).cpu()
    torch.manual_seed(3)
    assert torch.equal(run(x).cpu(), first)
    assert not torch.equal(first, second)
    assert set(first.tolist()) == {0.0, 2.0}


def test_an_op_without_a_lowering_is_named():
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=r"no lowering for aten.linalg_eig"):
        compiled(lambda x: torch.linalg.eigvals(x))(torch.ones(2, 2, device="pjrt"))


def test_another_shape_is_another_program():
    run = compiled(lambda x: x * 3)
    run(torch.ones(2, device="pjrt"))
    longer = torch.ones(5, device="pjrt")
    before = COUNTERS.misses
    assert run(longer).tolist() == [3] * 5
    assert COUNTERS.misses == before + 1
