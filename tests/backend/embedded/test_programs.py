"""Random programs of views, in-place writes and reads: the device agrees with the CPU after each."""

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

#: A view of a tensor of any shape; each is valid for rank 2 and stays of rank 2.
VIEWS = {
    "t": lambda x: x.t(),
    "rows": lambda x: x[: max(1, x.shape[0] - 1)],
    "columns": lambda x: x[:, x.shape[1] // 2 :],
    "steps": lambda x: x[::2],
    "alias": lambda x: x.view(x.shape),
    "diagonal": lambda x: x.diagonal().unsqueeze(0),
    "same": lambda x: x,
}
#: Writes into a view.
WRITES = {
    "add": lambda x: x.add_(1.25),
    "mul": lambda x: x.mul_(-0.5),
    "fill": lambda x: x.fill_(2.0),
    "copy": lambda x: x.copy_(torch.arange(x.numel(), dtype=x.dtype, device=x.device).reshape(x.shape)),
    "own": lambda x: x.add_(x.clone().flip(0)),
    "where": lambda x: x.masked_fill_(x > 1, 0.75),
    "row": lambda x: x[0].sub_(3.0),
    "sigmoid": lambda x: x.sigmoid_(),
    "foreach": lambda x: torch._foreach_add_([x, x[:1]], 1.0),
}
#: New tensors from two.
MAKES = {
    "sum": lambda a, b: a + b.sum(),
    "matmul": lambda a, b: (a @ a.t())[:, :2] * b.mean(),
    "reduce": lambda a, b: a.sum(0, keepdim=True).expand(3, -1).contiguous(),
    "cat": lambda a, b: torch.cat([a, a * 2]),
    "contiguous": lambda a, b: a.t().contiguous(),
}

STEP = st.tuples(st.sampled_from([*VIEWS, *WRITES, *MAKES, "read"]), st.integers(0, 7), st.integers(0, 7))


def run(program, device):
    """Every value that is read, and at the end every tensor."""
    pool = [(torch.arange(12.0, dtype=torch.float64).reshape(3, 4) / 7).to(device)]
    reads = []
    for name, i, j in program:
        x, y = pool[i % len(pool)], pool[j % len(pool)]
        if name in VIEWS:
            pool.append(VIEWS[name](x))
        elif name in MAKES:
            pool.append(MAKES[name](x, y))
        elif name in WRITES:
            WRITES[name](x)
        else:
            reads.append(x.sum().item())
    return reads, [x.cpu() for x in pool]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEP, max_size=12))
def test_random_programs_agree_with_the_cpu(pjrt, program):
    expected, got = run(program, "cpu"), run(program, "pjrt")
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
