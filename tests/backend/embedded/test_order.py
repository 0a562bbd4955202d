import pytest
import torch

NAN = float("nan")
ROWS = torch.tensor([[3.0, 1.0, 3.0, NAN], [2.0, 2.0, -1.0, 5.0], [NAN, NAN, NAN, NAN]])


def check(got, expected):
    for a, b in zip(got, expected, strict=True):
        assert a.dtype is b.dtype and a.shape == b.shape
        torch.testing.assert_close(a.cpu(), b, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["median", "nanmedian", "cummax", "cummin"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_nans_are_ordered_as_on_the_cpu(pjrt, name, dim):
    got, expected = getattr(ROWS.to(pjrt), name)(dim), getattr(ROWS, name)(dim)
    check([got.values], [expected.values])
    if name.startswith("cum"):
        check([got.indices], [expected.indices])


@pytest.mark.parametrize("x", [ROWS, ROWS[:0], torch.tensor(2.0), torch.tensor([4, 1, 3])])
def test_medians_of_all_are_the_cpus(pjrt, x):
    if x.numel() or x.dtype.is_floating_point:
        check([x.to(pjrt).median(), x.to(pjrt).nanmedian()], [x.median(), x.nanmedian()])


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("int32", [False, True])
def test_a_search_lands_where_the_cpus_does(pjrt, right, int32):
    ordered = torch.tensor([[0.0, 1.0, 1.0, 2.0], [-3.0, -1.0, 0.5, 9.0]])
    sought = torch.tensor([[1.0, -5.0, 3.0], [0.5, 9.0, -2.0]])
    choice = {"right": right, "out_int32": int32}
    check(
        [
            torch.searchsorted(ordered.to(pjrt), sought.to(pjrt), **choice),
            torch.searchsorted(ordered[0].to(pjrt), 1.0, **choice),
            torch.bucketize(sought.to(pjrt), ordered[1].to(pjrt), **choice),
            torch.searchsorted(ordered[0, :0].to(pjrt), sought.to(pjrt), **choice),
        ],
        [
            torch.searchsorted(ordered, sought, **choice),
            torch.searchsorted(ordered[0], 1.0, **choice),
            torch.bucketize(sought, ordered[1], **choice),
            torch.searchsorted(ordered[0, :0], sought, **choice),
        ],
    )


def test_half_precision_quotients_are_truncated_before_they_are_rounded(pjrt):
    a, b = torch.tensor([100.0], dtype=torch.bfloat16), torch.tensor([1.03125], dtype=torch.bfloat16)
    exact = torch.div(a.double(), b.double(), rounding_mode="trunc")
    assert torch.div(a.to(pjrt), b.to(pjrt), rounding_mode="trunc").cpu().double().equal(exact)


def test_draws_follow_their_weights(pjrt):
    weights = torch.tensor([[0.0, 1.0, 3.0], [2.0, 0.0, 0.0]])
    drawn = torch.multinomial(weights.to(pjrt), 4000, replacement=True).cpu()
    share = (drawn[0] == 2).double().mean()
    assert (drawn[0] > 0).all() and (drawn[1] == 0).all() and 0.70 < share < 0.80
    once = torch.multinomial(weights[:1].to(pjrt), 2).cpu()
    assert sorted(once[0].tolist()) == [1, 2]


def test_the_poles_of_zeta_are_the_cpus(pjrt):
    x = torch.tensor([1.0, 0.5, 2.0, 2.0, 2.5, 3.0])
    q = torch.tensor([2.0, 2.0, 0.0, -1.0, -1.5, 1.5])
    check([torch.special.zeta(x.to(pjrt), q.to(pjrt))[:5]], [torch.special.zeta(x, q)[:5]])
