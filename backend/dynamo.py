"""What Dynamo tells of itself. Its counters are private: they are read here and nowhere else."""

from __future__ import annotations

import os
from typing import Any

from backend.protocol import Unsupported


def strict() -> None:
    """Make a compiled mode compile or fail: Dynamo has several ways of running eagerly and saying nothing.

    Raises:
        Unsupported: an environment variable switches Dynamo off.
    """
    import torch
    from torch._dynamo.utils import set_compilation_metrics_limit

    for variable in ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"):
        if os.environ.get(variable) == "1":
            raise Unsupported(f"torch.compile: {variable}=1 switches it off: unset it")
    torch._dynamo.config.suppress_errors = False
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    # The default keeps the last 64 compilations only; compile_seconds() sums over all of them.
    set_compilation_metrics_limit(4096)


def _counters() -> Any:
    from torch._dynamo.utils import counters

    return counters


def graphs() -> int:
    """Graphs captured so far."""
    return int(_counters()["stats"].get("unique_graphs", 0))


def graph_breaks() -> int:
    """Graph breaks so far, each place once. The reasons are in ``torch._dynamo.explain``."""
    counters = _counters()
    return len(set(counters["graph_break"]) | set(counters["unimplemented"]))


def inductor_cache() -> tuple[int, int] | None:
    """``(hits, misses)`` of Inductor's cache of compiled graphs on disk; None where it is switched off."""
    import torch

    if torch.compiler.config.force_disable_caches:
        return None
    inductor = _counters()["inductor"]
    return int(inductor.get("fxgraph_cache_hit", 0)), int(inductor.get("fxgraph_cache_miss", 0))


def compile_seconds() -> float:
    """Seconds spent compiling so far: capture and backend together.

    The backward graph is compiled at its first use, in a record of its own of which only the
    duration is filled in.
    """
    from torch._dynamo.utils import get_compilation_metrics

    return sum(m.duration_us or 0 for m in get_compilation_metrics()) / 1e6
