"""What the tests of the embedded backend share."""

import contextlib

import pytest


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
