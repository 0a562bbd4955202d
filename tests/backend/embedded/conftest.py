"""What the tests of the embedded backend share."""

import contextlib

import pytest
import torch


@pytest.fixture
def mode_of(pjrt):
    """``with mode_of("eager-fused"):`` runs the block in a mode; eager again after it."""
    from backend.embedded.mode import set_mode

    @contextlib.contextmanager
    def switch(mode):
        set_mode(mode)
        try:
            yield
        finally:
            set_mode("eager")

    return switch


#: Every mode a test of unmodified programs runs in. A new mode is one more name here.
MODES = ["eager", "eager-blocking", "eager-fused", "compile"]


@pytest.fixture(params=MODES)
def mode(request, mode_of):
    """The name of a mode, which the test's ops run in; in compile mode :func:`compiled` compiles."""
    with mode_of("eager" if request.param == "compile" else request.param):
        yield request.param


@pytest.fixture
def compiled(mode):
    """``compiled(function)``: the function compiled in compile mode, itself in the others."""

    def wrap(function, **options):
        if mode != "compile":
            return function
        torch._dynamo.reset()
        return torch.compile(function, backend="pjrt", **{"dynamic": False, **options})

    return wrap
