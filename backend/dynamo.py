"""What Dynamo tells of itself. Its counters are private: they are read here and nowhere else."""

from __future__ import annotations

from typing import Any


def strict() -> None:
    """Make a frame that reaches the recompile limit an error: it would run eagerly, and say nothing."""
    import torch

    torch._dynamo.config.fail_on_recompile_limit_hit = True


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


def inductor_cache() -> tuple[int, int]:
    """``(hits, misses)`` of Inductor's cache of compiled graphs on disk."""
    inductor = _counters()["inductor"]
    return int(inductor.get("fxgraph_cache_hit", 0)), int(inductor.get("fxgraph_cache_miss", 0))


def compile_seconds() -> float:
    """Seconds spent compiling frames so far: capture and backend together, backward graphs too."""
    from torch._dynamo.utils import get_compilation_metrics

    return sum(m.entire_frame_compile_time_s or m.backend_compile_time_s or 0.0 for m in get_compilation_metrics())
