"""Training loops in three public styles, unmodified, in every mode: losses and parameters are the CPU's in float64."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.backend.embedded.nets import Attention, Conv


def images(n=4):
    return torch.randn(n, 3, 16, 16, dtype=torch.float64), torch.randint(5, (n,))


def tokens(n=4):
    return torch.randint(11, (n, 6)), torch.randint(5, (n,))


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-4)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


NETS = {"conv-sgd": (Conv, images, sgd), "transformer-adamw": (Attention, tokens, adamw)}


def unchanged(function, **_):
    return function


def plain(model, batches, make_optimizer, device, compiled=unchanged):
    """Style (a): zero, forward, backward, step."""
    model = model.to(device)
    optimizer = make_optimizer(model.parameters())
    forward, step = compiled(model), compiled(optimizer.step)
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(forward(x.to(device)), y.to(device))
        loss.backward()
        step()
        losses.append(loss.item())
    return losses


def mixed(model, batches, make_optimizer, device, compiled=unchanged, dtype=torch.bfloat16):
    """Style (b): autocast around the forward pass, a scaler around the backward pass."""
    model = model.to(device)
    optimizer = make_optimizer(model.parameters())
    scaler = torch.amp.GradScaler(device, init_scale=256.0)
    forward = compiled(model)
    losses = []
    for x, y in batches:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device_type=device, dtype=dtype):
            loss = F.cross_entropy(forward(x.to(device)), y.to(device))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


def accumulated(model, batches, make_optimizer, device, compiled=unchanged, reentrant=False):
    """Style (c): two batches a step, recomputed activations, clipped gradients, a schedule."""
    model = model.to(device)
    optimizer = make_optimizer(model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    forward, step = compiled(model), compiled(optimizer.step)
    losses = []
    for i, (x, y) in enumerate(batches):
        there = x.to(device)
        if reentrant:
            there.requires_grad_()  # or reentrant checkpointing sees nothing to differentiate
        out = checkpoint(forward, there, use_reentrant=reentrant)
        loss = F.cross_entropy(out, y.to(device)) / 2
        loss.backward()
        losses.append(loss.item())
        if i % 2:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            step()
            schedule.step()
            optimizer.zero_grad()
    return losses


def both(loop, net, device_options=(), count=3, cast=torch.float64, **options):
    make, data, optimizer = NETS[net]
    torch.manual_seed(0)
    model = make().to(cast)
    batches = [data() for _ in range(count)]
    batches = [(x.to(cast) if x.is_floating_point() else x, y) for x, y in batches]
    here, there = copy.deepcopy(model), copy.deepcopy(model)
    expected = loop(here, batches, optimizer, "cpu", **options)
    got = loop(there, batches, optimizer, "pjrt", **dict(device_options), **options)
    return expected, here.state_dict(), got, {k: v.cpu() for k, v in there.state_dict().items()}


def follows(expected, state, got, got_state):
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=0)
    torch.testing.assert_close(got_state, state, rtol=1e-9, atol=1e-9)
    assert got[-1] != got[0]


@pytest.mark.parametrize("net", NETS)
def test_a_plain_loop(net, mode, compiled):
    follows(*both(plain, net, {"compiled": compiled}))


@pytest.mark.parametrize("net", ["conv-sgd", pytest.param("transformer-adamw", marks=pytest.mark.slow)])
def test_a_loop_with_autocast_is_the_same_loop_in_float64(net, mode, compiled):
    follows(*both(mixed, net, {"compiled": compiled}))


@pytest.mark.parametrize("net", ["conv-sgd", pytest.param("transformer-adamw", marks=pytest.mark.slow)])
def test_a_loop_with_autocast_trains_in_bfloat16(net, mode, compiled):
    expected, _, got, state = both(mixed, net, {"compiled": compiled}, cast=torch.float32)
    torch.testing.assert_close(got, expected, rtol=3e-2, atol=0)
    assert all(v.dtype in (torch.float32, torch.int64) for v in state.values())


@pytest.mark.parametrize(("net", "reentrant"), [("conv-sgd", True), ("transformer-adamw", False)])
def test_a_loop_with_accumulation_and_checkpointing(net, reentrant, mode, compiled):
    follows(*both(accumulated, net, {"compiled": compiled}, count=4, reentrant=reentrant))
