"""Records made by hand, for tests of what reads them."""

from tpubench.accounting import account
from tpubench.record import Record, Status
from tpubench.spec import Spec

#: Twelve step times round 0.1 s; a whole multiple of them keeps every ratio exact.
STEPS = [0.100, 0.101, 0.099, 0.102, 0.098, 0.100, 0.103, 0.097, 0.100, 0.101, 0.099, 0.100]


def make_spec(**fields):
    """A cell of resnet/small, embedded:eager."""
    optimizer = "sgd" if fields.get("phase", "train") == "train" else ""
    common = {"workload": "resnet", "size": "small", "backend": "embedded", "mode": "eager", "batch": 16}
    return Spec(**{**common, "optimizer": optimizer, **fields})


def make_record(status=Status.OK, *, scale=1.0, spec=None, number=1, **fields):
    """A record whose steps are ``scale`` times :data:`STEPS`."""
    spec = spec or make_spec()
    measured = {}
    if status in (Status.OK, Status.RECOMPILED, Status.MISMATCHED):
        measured = {
            "step_s": [scale * s for s in STEPS],
            "warmup_s": [5.0, 1.0, scale * 0.1],
            "item": "image",
            "items_per_step": float(spec.batch),
            "model_flops": 2e9,
            "analytic_flops": 2e9,
            "chips": 1,
            "device_name": "cpu",
            "cpu_model": "Test CPU",
            "host": "box",
            "peak_memory_bytes": 512 * 2**20,
            "peak_memory_kind": "host-rss",
            "correctness": "matched",
            "correctness_detail": "loss of step 1: 1e-7 relative, within 1e-05",
            "tpubench_version": "0.1.0",
            "torch_version": "2.13.0",
        }
    return Record.of(
        spec,
        run_id=f"20261201T0000{number:02d}000Z-{spec.fingerprint}",
        created=f"2026-12-01T00:00:{number:02d}.000Z",
        status=status,
        **{**measured, **fields},
    )


def comparable():
    """Torch eager at 0.1 s, embedded compile at half, embedded eager at about the same, one that cannot."""
    return [
        account(r)
        for r in (
            make_record(number=1, spec=make_spec(backend="torch", mode="eager"), compile_s=0.0),
            make_record(scale=0.5, number=2, spec=make_spec(mode="compile"), compile_requests=100, compile_hits=97),
            make_record(scale=1.001, number=3, spec=make_spec(mode="eager"), correctness="not checked"),
            make_record(Status.UNSUPPORTED, number=4, spec=make_spec(mode="eager-fused"), reason="not built yet"),
        )
    ]
