"""Random programs of views, in-place writes, new tensors and reads, to be run on two devices and compared.

Every tensor has rank 2 and float64 values of moderate size, so that every step is valid after every other.
"""

import torch
from hypothesis import strategies as st

#: A view of a tensor of any shape of rank 2, of rank 2.
VIEWS = {
    "t": lambda x: x.t(),
    "rows": lambda x: x[: max(1, x.shape[0] - 1)],
    "columns": lambda x: x[:, x.shape[1] // 2 :],
    "steps": lambda x: x[::2],
    "alias": lambda x: x.view(x.shape),
    "diagonal": lambda x: x.diagonal().unsqueeze(0),
    "same": lambda x: x,
    "detach": lambda x: x.detach(),
    "expand": lambda x: x[:1].expand(3, -1),
    "window": lambda x: x.as_strided((1, x.shape[1]), x.stride(), x.storage_offset()),
    "unfold": lambda x: x[0].unfold(0, max(1, x.shape[1] // 2), max(1, x.shape[1] // 2)),
    "split": lambda x: x.split(max(1, x.shape[1] // 2), 1)[-1],
}
#: Writes into a view. Those into memory that is seen twice are refused on every device.
WRITES = {
    "add": lambda x: x.add_(1.25),
    "mul": lambda x: x.mul_(-0.5),
    "fill": lambda x: x.fill_(2.0),
    "zero": lambda x: x.zero_(),
    "copy": lambda x: x.copy_(torch.arange(x.numel(), dtype=x.dtype, device=x.device).reshape(x.shape)),
    "host": lambda x: x.copy_(torch.linspace(-1, 1, x.shape[1], dtype=x.dtype)),
    "own": lambda x: x.add_(x.clone().flip(0)),
    "where": lambda x: x.masked_fill_(x > 1, 0.75),
    "mask": lambda x: x.__setitem__(x < -1, -0.25),
    "index": lambda x: x.__setitem__((torch.tensor([0], device=x.device),), 0.125),
    "put": lambda x: x.index_add_(0, torch.tensor([0, 0], device=x.device), torch.ones_like(x[:1]).expand(2, -1)),
    "row": lambda x: x[0].sub_(3.0),
    "sigmoid": lambda x: x.sigmoid_(),
    "clamp": lambda x: x.clamp_(-1.5, 1.5),
    "out": lambda x: torch.sin(x.clone(), out=x),
    "foreach": lambda x: torch._foreach_add_([x, x[:1]], 1.0),
    "lerp": lambda x: torch._foreach_lerp_([x], [torch.ones_like(x)], 0.25),
}
#: New tensors from two.
MAKES = {
    "sum": lambda a, b: a + b.sum().tanh(),
    "matmul": lambda a, b: ((a @ a.t())[:, :2] * b.mean()).tanh(),
    "reduce": lambda a, b: a.sum(0, keepdim=True).expand(3, -1).contiguous().sin(),
    "cat": lambda a, b: torch.cat([a[:2], a[:2] * 2]),
    "contiguous": lambda a, b: a.t().contiguous(),
    "cumsum": lambda a, b: a.cumsum(1).sin(),
    "softmax": lambda a, b: a.softmax(0),
    "gather": lambda a, b: a[torch.zeros(2, dtype=torch.int64, device=a.device)],
    "choose": lambda a, b: torch.where(a > 0, a, b[0, 0]),
    "grad": lambda a, b: gradient(a, b),
    "int": lambda a, b: (a * 4).to(torch.int64).remainder(5).to(a.dtype),
}


def gradient(a, b):
    """The gradient of a small function of ``a``, with a factor from ``b``."""
    leaf = a.detach().clone().requires_grad_()
    with torch.enable_grad():
        loss = (leaf.sin() * leaf.exp().clamp(max=3.0)).sum() * b.mean().tanh()
    return torch.autograd.grad(loss, leaf)[0]


#: PyTorch only warns of these on memory that is seen twice; the device refuses them.
_ORDERED = {"mask", "index", "where"}


def _is_ordered(name, x):
    return name in _ORDERED and any(n > 1 and s == 0 for n, s in zip(x.shape, x.stride(), strict=True))


READ = "read"
STEP = st.tuples(st.sampled_from([*VIEWS, *WRITES, *MAKES, READ]), st.integers(0, 7), st.integers(0, 7))


def programs(length):
    """Programs of up to ``length`` steps: a name, and the tensors it is about."""
    return st.lists(STEP, max_size=length)


def first(device):
    """The tensor that every program starts from."""
    return (torch.arange(12.0, dtype=torch.float64).reshape(3, 4) / 7).to(device)


def steps(program, start):
    """``(reads, refusals, every tensor at the end)``; a step that is refused changes nothing."""
    pool, reads, refused = [start], [], []
    for place, (name, i, j) in enumerate(program):
        x, y = pool[i % len(pool)], pool[j % len(pool)]
        try:
            if name in VIEWS:
                pool.append(VIEWS[name](x))
            elif name in MAKES:
                pool.append(MAKES[name](x, y))
            elif name in WRITES and not _is_ordered(name, x):
                WRITES[name](x)
            elif name == READ:
                reads.append(x.sum().item())
        except RuntimeError:
            refused.append(place)
    return reads, refused, pool


def run(program, device):
    """What :func:`steps` gives on ``device``, on the CPU."""
    reads, refused, pool = steps(program, first(device))
    return reads, refused, [x.cpu() for x in pool]


def run_compiled(program):
    """:func:`run` on the device, the steps captured by Dynamo: reads are graph breaks."""
    torch._dynamo.reset()
    compiled = torch.compile(steps, backend="pjrt", dynamic=False)
    reads, refused, pool = compiled(program, first("pjrt"))
    return reads, refused, [x.cpu() for x in pool]
