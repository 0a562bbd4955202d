"""Which runs a sweep makes, and in which order."""

from collections import Counter

from records import make_record, make_spec

from tpubench.record import Status
from tpubench.sweep import DIED, Sweep

CELLS = [make_spec(batch=batch, mode=mode) for batch in (1, 2, 4) for mode in ("eager", "compile")]


def finish(sweep, statuses=None):
    """The cells in the order in which they ran, each ending as ``statuses`` says of its batch."""
    ran = []
    for spec in sweep.runs():
        ran.append(spec)
        status = (statuses or {}).get(spec.batch, Status.OK)
        sweep.add(make_record(status, spec=spec))
    assert sweep.left == 0
    return ran


def test_one_process_a_cell_keeps_the_order_and_runs_each_once():
    assert finish(Sweep([*CELLS, *CELLS])) == CELLS


def test_repetitions_are_passes_over_all_cells_each_in_an_order_of_its_own():
    ran = finish(Sweep(CELLS, 8))
    passes = [ran[n : n + 6] for n in range(0, 48, 6)]
    assert all(sorted(p, key=CELLS.index) == CELLS for p in passes)
    assert len({tuple(CELLS.index(spec) for spec in p) for p in passes}) > 4
    # No cell has a place of its own: of 8 passes none puts the same cell first more than half the time.
    assert max(Counter(p[0].fingerprint for p in passes).values()) <= 4


def test_the_same_cells_are_drawn_in_the_same_order_and_another_seed_draws_another():
    assert finish(Sweep(CELLS, 3)) == finish(Sweep(CELLS, 3))
    reseeded = finish(Sweep([make_spec(batch=s.batch, mode=s.mode, seed=7) for s in CELLS], 3))
    assert [(s.batch, s.mode) for s in reseeded] != [(s.batch, s.mode) for s in finish(Sweep(CELLS, 3))]


def test_a_cell_that_fails_for_a_reason_of_its_own_is_not_repeated():
    for status in (Status.OOM, Status.TIMEOUT, Status.UNSUPPORTED, Status.ERROR, Status.RECOMPILED, Status.MISMATCHED):
        ran = Counter(spec.batch for spec in finish(Sweep(CELLS, 5), {2: status}))
        assert ran == {1: 10, 2: 2, 4: 10}


def test_a_worker_that_died_counts_and_the_others_run():
    sweep = Sweep(CELLS[:1], 3)
    count = 0
    for spec in sweep.runs():
        count += 1
        sweep.add(make_record(Status.ERROR, spec=spec, error_class=DIED))
    assert count == 3


def test_only_what_is_missing_runs():
    past = [make_record(spec=CELLS[0])] * 3 + [make_record(spec=CELLS[1])] + [make_record(Status.OOM, spec=CELLS[2])]
    sweep = Sweep(CELLS, 3, past)
    assert sweep.left == 2 + 9
    assert Counter(finish(sweep)) == {CELLS[1]: 2, CELLS[3]: 3, CELLS[4]: 3, CELLS[5]: 3}


def test_a_name_says_what_tells_a_run_from_the_others():
    sweep = Sweep(CELLS, 2, [make_record(spec=CELLS[0])])
    assert sweep.name(CELLS[0]) == "resnet/small embedded:eager batch=1, process 2 of 2"
    assert Sweep(CELLS[:2]).name(CELLS[1]) == "resnet/small embedded:compile"
