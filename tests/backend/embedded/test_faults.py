"""Faults that PyTorch's own op samples found, each with its whole kind; bags of embeddings."""

import pytest
import torch
from torch.nn import functional as F


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 4])
@pytest.mark.parametrize("last", [False, True])
def test_bags_are_the_cpus(pjrt, mode, padding, last):
    torch.manual_seed(0)
    table, indices = torch.randn(7, 3, dtype=torch.float64), torch.tensor([1, 2, 4, 5, 4, 3, 2, 1])
    offsets = torch.tensor([0, 3, 3, 8]) if last else torch.tensor([0, 3, 3])

    def run(device):
        x = table.to(device).requires_grad_()
        given = indices.to(device), x, offsets.to(device)
        y = F.embedding_bag(*given, mode=mode, padding_idx=padding, include_last_offset=last)
        return [y.detach().cpu(), torch.autograd.grad((y * y * y).sum(), x)[0].cpu()]

    torch.testing.assert_close(run("pjrt"), run("cpu"), rtol=1e-12, atol=1e-12)


def test_weights_of_samples_get_their_gradient(pjrt):
    torch.manual_seed(0)
    table, weights = torch.randn(5, 3, dtype=torch.float64), torch.rand(4, dtype=torch.float64)

    def run(device):
        x, w = table.to(device).requires_grad_(), weights.to(device).requires_grad_()
        indices, offsets = torch.tensor([0, 2, 2, 4], device=device), torch.tensor([0, 1], device=device)
        y = F.embedding_bag(indices, x, offsets, mode="sum", per_sample_weights=w)
        return [g.cpu() for g in torch.autograd.grad((y * y).sum(), (x, w))]

    torch.testing.assert_close(run("pjrt"), run("cpu"), rtol=1e-12, atol=1e-12)


def test_sparse_gradients_are_refused(pjrt):
    table = torch.nn.EmbeddingBag(4, 2, sparse=True).to("pjrt")
    with pytest.raises(NotImplementedError, match="sparse"):
        table(torch.tensor([0, 1], device="pjrt"), torch.tensor([0], device="pjrt"))


def test_rsub_scales_its_first_operand(pjrt):
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([5.0, 7.0])
    for other in (b, 5, 2.5):
        there = other.to("pjrt") if isinstance(other, torch.Tensor) else other
        assert torch.equal(torch.rsub(a.to("pjrt"), there, alpha=3).cpu(), torch.rsub(a, other, alpha=3))


@pytest.mark.parametrize("mode", ["eager", "eager-fused"])
def test_in_place_ops_on_nothing_change_nothing(mode_of, mode):
    with mode_of(mode):
        x = torch.empty(0, 3, device="pjrt")
        torch._foreach_add_([x], 1.0)
        assert x.add_(1).mul_(2).shape == (0, 3)
        assert x.sum().item() == 0
