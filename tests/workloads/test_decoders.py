"""The decoders against what is published of them, against transformers' own, and against themselves.

Parameter counts: https://huggingface.co/meta-llama/Llama-3.2-1B, Llama-3.1-8B, Qwen/Qwen3-0.6B, Qwen/Qwen3-1.7B and
openai-community/gpt2, shared tables counted once.
"""

from __future__ import annotations

import math

import pytest
import torch

from workloads.models import gpt, llama
from workloads.optimizers import make_optimizer
from workloads.protocol import Built
from workloads.registry import load

DECODERS = ("llama", "qwen", "mingpt")


def output(built: Built, *batch: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return built.compute(built.module, *batch)


@pytest.mark.parametrize(
    ("name", "size", "parameters"),
    [
        ("llama", "1b", 1_235_814_400),
        ("llama", "8b", 8_030_261_248),
        ("qwen", "0.6b", 596_049_920),
        ("qwen", "1.7b", 1_720_574_976),
        ("mingpt", "gpt2", 124_439_808),
    ],
)
def test_parameter_counts_are_the_published_ones(name: str, size: str, parameters: int) -> None:
    with torch.device("meta"):
        module = load(name).build(size, "train", torch.float32, 0).module
    assert sum(p.numel() for p in module.parameters()) == parameters


@pytest.mark.parametrize("name", DECODERS)
def test_shapes_and_dtypes_of_every_phase(name: str) -> None:
    workload = load(name)
    size = workload.sizes["tiny"]
    assert size.seq_len is not None
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        built = workload.build("tiny", "train", dtype, 0)
        assert {p.dtype for p in built.module.parameters()} == {dtype}
        tokens, targets = built.make_batch(3, 8, 0)
        assert tokens.shape == targets.shape == (3, 8)
        assert torch.equal(tokens[:, 1:], targets[:, :-1]), "a target is the next token"
        loss = built.compute(built.module, tokens, targets)
        assert loss.shape == () and loss.dtype == torch.promote_types(dtype, torch.float32)
        logits = built.module(tokens)
        for phase in ("prefill", "decode"):
            other = workload.build("tiny", phase, dtype, 0)
            assert not other.module.training and other.streamed == 1
            out = output(other, *other.make_batch(3, 8, 0))
            assert out.shape == (3, logits.shape[-1]) and out.dtype == dtype


@pytest.mark.parametrize("name", DECODERS)
def test_prefill_then_decode_is_the_whole_sequence(name: str) -> None:
    """The cache holds what it should: a token decoded after a prompt has the logits of the sequence run at once."""
    workload = load(name)
    prefill = workload.build("tiny", "prefill", torch.float64, 0)
    decode = workload.build("tiny", "decode", torch.float64, 0)
    tokens = prefill.make_batch(2, 12, 0)[0]
    with torch.no_grad():
        whole = prefill.module(tokens)
    for length in (1, 5, 11):
        prompt, *_ = prefill.make_batch(2, length, 0)
        prompt.copy_(tokens[:, :length])
        cache = prefill.make_batch(2, length, 0)[1:]
        torch.testing.assert_close(output(prefill, prompt, *cache), whole[:, length - 1], rtol=1e-9, atol=1e-9)
        # A longer cache: what lies beyond the token's place is never looked at.
        longer = [torch.full((2, x.shape[1], 16, x.shape[3]), 1e3, dtype=x.dtype) for x in cache]
        for wide, narrow in zip(longer, cache, strict=True):
            wide[:, :, :length] = narrow
        token, position = tokens[:, length : length + 1], torch.tensor([length])
        got = output(decode, token, position, *longer)
        torch.testing.assert_close(got, whole[:, length], rtol=1e-9, atol=1e-9)
        for wide, narrow in zip(longer, cache, strict=True):
            assert torch.equal(wide[:, :, :length], narrow)
            assert (wide[:, :, length] != 1e3).all() and (wide[:, :, length + 1 :] == 1e3).all()


@pytest.mark.parametrize("name", DECODERS)
def test_no_token_sees_a_later_one(name: str) -> None:
    module = load(name).build("tiny", "prefill", torch.float64, 0).module
    tokens = torch.arange(10).repeat(2, 1)
    tokens[1, 6:] += 1
    with torch.no_grad():
        logits = module(tokens)
    assert torch.equal(logits[0, :6], logits[1, :6])
    assert not torch.allclose(logits[0, 6:], logits[1, 6:])


@pytest.mark.parametrize("name", DECODERS)
def test_positions_matter(name: str) -> None:
    module = load(name).build("tiny", "prefill", torch.float64, 0).module
    with torch.no_grad():
        one, other = module(torch.tensor([[1, 2, 3, 4]])), module(torch.tensor([[2, 1, 3, 4]]))
    assert (one[0, -1] - other[0, -1]).abs().max() > 1e-6


@pytest.mark.parametrize("name", DECODERS)
def test_the_seed_decides_and_every_dtype_starts_from_the_same_numbers(name: str) -> None:
    workload = load(name)
    before = torch.get_rng_state()
    one = workload.build("tiny", "train", torch.float32, 7).module
    assert torch.equal(torch.get_rng_state(), before), "building draws from the caller's generator"
    again = workload.build("tiny", "train", torch.bfloat16, 7).module
    other = workload.build("tiny", "train", torch.float32, 8).module
    for (key, a), b, c in zip(one.named_parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(a.to(torch.bfloat16), b), key
        assert a.dim() == 1 or not torch.equal(a, c), key
        assert a.isfinite().all(), key


def test_rotations_stay_exact_in_half_precision() -> None:
    """Angles in bfloat16 would put token 1001 at token 1000's place."""
    shape = llama.Shape(16, 16, 16, 1, 1, 1, 16, 10_000.0, 1e-6, tied=True)
    module = llama.Decoder(shape, torch.bfloat16).to("cpu")
    assert module.model.frequencies.dtype == torch.float32
    positions = torch.tensor([1000, 1001])
    cosines, _ = llama.rotation(module.model.frequencies, positions, torch.bfloat16)
    assert cosines[0, 0].item() == pytest.approx(math.cos(1000), abs=1e-2)
    assert cosines[1, 0].item() == pytest.approx(math.cos(1001), abs=1e-2)


def test_a_rotation_depends_on_the_distance_alone() -> None:
    shape = llama.Shape(16, 16, 16, 1, 1, 1, 16, 10_000.0, 1e-6, tied=True)
    frequencies = llama.frequencies(shape, torch.float64)
    query, key = torch.randn(2, 1, 1, 1, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def product(at: int, before: int) -> float:
        turned = [
            llama.rotate(x, llama.rotation(frequencies, torch.tensor([place]), torch.float64))
            for x, place in ((query, at), (key, before))
        ]
        return (turned[0] * turned[1]).sum().item()

    assert product(7, 3) == pytest.approx(product(104, 100), rel=1e-9)
    assert product(7, 3) != pytest.approx(product(7, 2), rel=1e-3)


@pytest.mark.parametrize("name", DECODERS)
def test_the_loss_begins_at_knowing_nothing_and_falls(name: str) -> None:
    workload = load(name)
    size = workload.sizes["tiny"]
    built = workload.build("tiny", "train", torch.float32, 0)
    batch = built.make_batch(size.batch, size.seq_len, 0)
    optimizer = make_optimizer(workload.optimizer, built.module)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = built.compute(built.module, *batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    vocabulary = built.module.lm_head.weight.shape[0]  # type: ignore[union-attr]
    assert losses[0] == pytest.approx(math.log(vocabulary), rel=0.05)
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize("name", DECODERS)
def test_work_by_formula_grows_as_it_should(name: str) -> None:
    workload = load(name)
    for phase in workload.phases:
        assert workload.flops("small", phase, 6, 64) == 3 * workload.flops("small", phase, 2, 64)
    # Attention is quadratic, the rest linear: doubling the length more than doubles the work.
    assert workload.flops("small", "train", 1, 128) > 2 * workload.flops("small", "train", 1, 64)
    assert workload.items("small", "train", 2, 64) == workload.items("small", "prefill", 2, 64) == 128
    assert workload.items("small", "decode", 2, 64) == 2


def test_training_a_gpt2_token_costs_six_flops_a_weight_and_attention() -> None:
    """PaLM, appendix B: 6 N + 12 L H Q T a token, its second term halved; N without positions, norms and biases."""
    weights = 124_439_808 - 1024 * 768 - 12 * (4 * 768 + 9 * 768) - 2 * 768
    expected = 6 * weights + 12 * 12 * 768 * 1024 / 2
    assert load("mingpt").flops("gpt2", "train", 1, 1024) / 1024 == pytest.approx(expected, rel=1e-12)


# -- transformers' own ---------------------------------------------------------------------------------------
def agree(ours: torch.nn.Module, theirs: torch.nn.Module, vocabulary: int) -> None:
    """The logits of random tokens, theirs and ours, to 1e-4 and far better."""
    tokens = torch.randint(vocabulary, (2, 24), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected, got = theirs.eval()(tokens).logits, ours.eval()(tokens)
    assert expected.abs().max() > 0.05
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-4 * expected.abs().max().item())


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("stretch", [None, 8.0, 32.0])
def test_llama_is_transformers_llama(tied: bool, stretch: float | None) -> None:
    transformers = pytest.importorskip("transformers", reason="the extra `hf` is not installed")
    config = transformers.LlamaConfig(
        vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, tie_word_embeddings=tied, rms_norm_eps=1e-5, initializer_range=0.2,
        max_position_embeddings=131_072,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0} if stretch is None else {
            "rope_type": "llama3", "rope_theta": 500.0, "factor": stretch, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
        },
    )  # fmt: skip
    torch.manual_seed(1)
    theirs = transformers.LlamaForCausalLM(config)
    scaling = None if stretch is None else llama.RopeScaling(stretch, original=64)
    ours = llama.Decoder(llama.Shape(97, 64, 96, 3, 4, 2, 16, 500.0, 1e-5, tied, scaling=scaling))
    ours.load_state_dict(theirs.state_dict())
    agree(ours, theirs, 97)


def test_qwen_is_transformers_qwen3() -> None:
    transformers = pytest.importorskip("transformers", reason="the extra `hf` is not installed")
    config = transformers.Qwen3Config(
        vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, tie_word_embeddings=True, rms_norm_eps=1e-6, initializer_range=0.2,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    )  # fmt: skip
    torch.manual_seed(1)
    theirs = transformers.Qwen3ForCausalLM(config)
    for name, parameter in theirs.named_parameters():
        if "_norm" in name:  # ones would hide a norm left out
            torch.nn.init.uniform_(parameter, 0.5, 2.0)
    ours = llama.Decoder(llama.Shape(97, 64, 96, 3, 4, 2, 32, 1e6, 1e-6, tied=True, normed=True))
    ours.load_state_dict(theirs.state_dict())
    agree(ours, theirs, 97)


def test_mingpt_is_transformers_gpt2() -> None:
    transformers = pytest.importorskip("transformers", reason="the extra `hf` is not installed")
    config = transformers.GPT2Config(
        vocab_size=97, n_positions=32, n_embd=64, n_layer=3, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        initializer_range=0.2,
    )  # fmt: skip
    torch.manual_seed(1)
    theirs = transformers.GPT2LMHeadModel(config)
    for name, parameter in theirs.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
    ours = gpt.GPT(gpt.Shape(97, 32, 64, 3, 4))
    state = theirs.state_dict()
    # transformers keeps these as Conv1D, input first.
    turned = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    ours.load_state_dict({name: x.T if name.endswith(turned) else x for name, x in state.items()})
    agree(ours, theirs, 97)
