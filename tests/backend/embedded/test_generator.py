"""Random streams: generators, the kept state, and masks that are drawn again."""

import copy
import pickle

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@pytest.fixture(autouse=True)
def _device(pjrt):
    torch._dynamo.reset()


DRAWS = {
    "randn": lambda g: torch.randn(4, device="pjrt", generator=g),
    "rand": lambda g: torch.rand(4, device="pjrt", generator=g),
    "randint": lambda g: torch.randint(1000, (4,), device="pjrt", generator=g),
    "randperm": lambda g: torch.randperm(50, device="pjrt", generator=g),
    "bernoulli": lambda g: torch.bernoulli(torch.full((64,), 0.5, device="pjrt"), generator=g),
    "bernoulli_": lambda g: torch.empty(64, device="pjrt").bernoulli_(generator=g),
    "uniform_": lambda g: torch.empty(4, device="pjrt").uniform_(2, 3, generator=g),
    "normal_": lambda g: torch.empty(4, device="pjrt").normal_(generator=g),
    "exponential_": lambda g: torch.empty(4, device="pjrt").exponential_(generator=g),
    "init": lambda g: torch.nn.init.kaiming_uniform_(torch.empty(4, 3, device="pjrt"), generator=g),
}


@pytest.mark.parametrize("mode", ["eager", "eager-fused"])
@pytest.mark.parametrize("device", ["pjrt", "cpu"])
@pytest.mark.parametrize("name", DRAWS)
def test_a_generator_drives_every_draw(name, device, mode, mode_of):
    with mode_of(mode):
        generator = torch.Generator(device=device).manual_seed(5)
        before = torch.pjrt.get_rng_state()
        first, second = DRAWS[name](generator).cpu(), DRAWS[name](generator).cpu()
        again = DRAWS[name](generator.manual_seed(5)).cpu()
        assert torch.equal(first, again) and not torch.equal(first, second)
        assert torch.equal(torch.pjrt.get_rng_state(), before)  # the default stream is another


def test_a_generator_on_the_device_is_pytorchs():
    generator = torch.Generator(device="pjrt")
    assert isinstance(generator, torch.Generator) and generator.device == torch.device("pjrt", 0)
    assert type(torch.Generator()) is torch._C.Generator and isinstance(torch.Generator(), torch.Generator)
    generator.manual_seed(3)
    assert generator.initial_seed() == 3
    state = generator.get_state()
    others = [generator, copy.deepcopy(generator), pickle.loads(pickle.dumps(generator)), generator.clone_state()]
    drawn = [DRAWS["randn"](g).tolist() for g in others]
    assert drawn.count(drawn[0]) == 4 and all(g.device.type == "pjrt" for g in others)
    generator.set_state(state)
    assert DRAWS["randn"](generator).tolist() == drawn[0]


def test_a_fork_leaves_the_stream_as_it_was():
    torch.manual_seed(1)
    expected = torch.randn(3, device="pjrt").tolist()
    torch.manual_seed(1)
    with torch.random.fork_rng(device_type="pjrt"):
        torch.manual_seed(9)
        torch.randn(3, device="pjrt")
    assert torch.randn(3, device="pjrt").tolist() == expected
    assert torch.pjrt.initial_seed() == 1


@pytest.mark.parametrize("reentrant", [False, True], ids=["saved-tensors", "reentrant"])
def test_checkpointing_draws_its_masks_again(reentrant, mode, compiled):
    torch.manual_seed(2)
    x = torch.ones(512, dtype=torch.float64, device="pjrt", requires_grad=True)

    def run(x):
        # The mask is needed in backward: another one would give another gradient.
        return checkpoint(lambda v: F.dropout(v, 0.5) * v, x, use_reentrant=reentrant)

    out = compiled(run)(x)
    out.sum().backward()
    torch.testing.assert_close(x.grad, 2 * out)
    assert 100 < (out > 0).sum().item() < 400
