"""Runs on the emulator against the rule's own function on NumPy arrays, and against plain NumPy."""

import re
import signal

import numpy as np
import pytest

import memlane as ml
from memlane.chip import load as load_chip
from memlane.emulate.code.store import Sources
from memlane.errors import DeviceError, RecordError, StencilError
from memlane.stencils import Code, DirectKernel, Face, FusedKernel, Problem, Variant
from memlane.stencils.choice import Estimate, direct_variants, estimates, fused_variants
from memlane.timeloop import variants
from memlane.timeloop.memory import blank, upload


@pytest.fixture(scope="module")
def target():
    return ml.target("emulator:h200")


@ml.stencil
def heat(new, u, r):
    new[0, 0] = u[0, 0] + r * (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1] - 4 * u[0, 0])


@ml.stencil
def measured(new, u, change, peak):
    v = 0.25 * (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1])
    change += (v - u[0, 0]) ** 2
    peak = max(peak, abs(v))
    new[0, 0] = v


def field(*shape, seed=0, dtype="f4"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def test_steps_are_what_plain_numpy_gives(target):
    u0 = field(19, 23)
    run = heat.on(ml.Grid((19, 23))).prepare(u=u0, r=0.1, swap=("new", "u"), fmad=False, targets=target)
    run.steps(5)
    expected, r = u0.copy(), np.float32(0.1)
    for _ in range(5):
        u = expected.copy()
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - np.float32(4) * u[1:-1, 1:-1]
        expected[1:-1, 1:-1] = u[1:-1, 1:-1] + r * around
    assert np.array_equal(run["u"].gather(), expected)
    assert run.step == 5


def test_fused_multiply_adds_round_once(target):
    u0 = field(19, 23)
    run = heat.on(ml.Grid((19, 23))).prepare(u=u0, r=0.1, swap=("new", "u"), targets=target)
    run.steps(1)
    u = u0.astype(np.float64)
    around = u0[:-2, 1:-1] + u0[2:, 1:-1] + u0[1:-1, :-2] + u0[1:-1, 2:]
    around = (around - np.float64(4) * u[1:-1, 1:-1]).astype(np.float32)  # products of two float32 are exact in float64
    expected = (u[1:-1, 1:-1] + np.float64(np.float32(0.1)) * around).astype(np.float32)
    assert np.array_equal(run["u"].gather()[1:-1, 1:-1], expected)


def test_conditions_at_faces_may_depend_on_the_face(target):
    grid = ml.Grid((9, 11), boundary=lambda face: 2.5 if face == Face(0, "low") else "periodic" if face.axis else "reflecting")
    values = {"u": field(9, 11), "r": 0.2, "swap": ("new", "u")}
    run = heat.on(grid).prepare(**values, fmad=False, targets=target).steps(3)
    assert np.array_equal(run["u"].gather(), heat.on(grid).reference(3, **values)["u"])
    u = values["u"]
    around = np.float32(2.5) + u[1, 0] + u[0, -1] + u[0, 1] - np.float32(4) * u[0, 0]
    first = heat.on(grid).reference(1, **values)["u"][0, 0]
    assert first == u[0, 0] + np.float32(0.2) * around


def test_reductions_of_the_last_step(target):
    u0 = field(12, 40)
    run = measured.on(ml.Grid((12, 40))).prepare(u=u0, swap=("new", "u"), fmad=False, targets=target).steps(3)
    u2 = measured.on(ml.Grid((12, 40))).reference(2, u=u0, swap=("new", "u"))["u"]
    v = np.float32(0.25) * (u2[:-2, 1:-1] + u2[2:, 1:-1] + u2[1:-1, :-2] + u2[1:-1, 2:])
    change = ((v - u2[1:-1, 1:-1]) ** 2).astype(np.float64).sum()
    assert run.reductions["change"] == pytest.approx(change, rel=1e-14)
    assert run.reductions["peak"] == np.abs(v).max()


def test_a_run_until_a_norm_is_small(target):
    run = measured.on(ml.Grid((8, 8))).prepare(u=field(8, 8), swap=("new", "u"), targets=target)
    steps = run.until("change", below=0.01, every=3)
    assert steps % 3 == 0
    assert steps == run.step
    assert run.reductions["change"] < 0.01
    with pytest.raises(StencilError, match=r"change is \S+ after 4 steps, not yet below 0"):
        run.until("change", below=0.0, at_most=4)
    with pytest.raises(StencilError, match=r"no rule reduces 'norm'; the reductions are change, peak"):
        run.until("norm", below=1.0)


def test_scalars_that_change_between_steps(target):
    schedule, u0 = np.linspace(0.0, 0.2, 6), field(10, 10)
    run = heat.on(ml.Grid((10, 10))).prepare(u=u0, r=0.0, swap=("new", "u"), fmad=False, targets=target)
    run.steps(6, r=schedule)
    assert np.array_equal(run["u"].gather(), heat.on(ml.Grid((10, 10))).reference(6, u=u0, r=schedule, swap=("new", "u"))["u"])
    with pytest.raises(StencilError, match=r"scalar 'r' has 6 values for 5 steps: give one for each step"):
        run.steps(5, r=schedule)


@ml.stencil
def leapfrog(new, u, old, speed):
    new[0] = 2 * u[0] - old[0] + speed[0] * (u[-1] - 2 * u[0] + u[1])


def test_three_buffers_a_source_and_a_probe(target):
    n, steps, pulse = 37, 9, np.array([1.0, 0.5, -2.0], "f4")
    grid = ml.Grid(n, boundary=0.0)
    run = leapfrog.on(grid).prepare(
        u=np.zeros(n), old=np.zeros(n), speed=np.full(n, 0.25, "f4"), swap=("new", "u", "old"), fmad=False, targets=target
    )
    run.add_source("u", at=[5], values=pulse)
    run.add_probe("u", at=[[6], [30]])
    run.steps(steps)
    u, old, speed, recorded = np.zeros(n, "f4"), np.zeros(n, "f4"), np.float32(0.25), []
    for step in range(steps):
        wide = np.pad(u, 1)
        new = np.float32(2) * u - old + speed * (wide[:-2] - np.float32(2) * u + wide[2:])
        new[5] += pulse[step] if step < 3 else 0
        u, old = new, u
        recorded.append([u[6], u[30]])
    assert np.array_equal(run["u"].gather(), u)
    assert np.array_equal(run["old"].gather(), old)
    assert np.array_equal(run.probed("u"), np.array(recorded))
    with pytest.raises(StencilError, match=r"cells of a grid of shape \(37,\) have 1 indices inside it"):
        run.add_probe("u", at=[[40]])


def test_rules_in_sequence_with_staggered_fields(target):
    @ml.stencil
    def electric(e_new, e, h):
        e_new[0] = e[0] + 0.5 * (h[0] - h[-1])

    @ml.stencil
    def magnetic(h_new, h, e_new):
        h_new[0] = h[0] + 0.5 * (e_new[1] - e_new[0])

    both, grid = electric.then(magnetic), ml.Grid(40, dtype="f8", boundary="periodic")
    values = {"e": field(40, dtype="f8"), "h": field(40, seed=1, dtype="f8"), "swap": (("e_new", "e"), ("h_new", "h"))}
    run = both.on(grid).prepare(**values, fmad=False, targets=target).steps(4)
    e, h = values["e"], values["h"]
    for _ in range(4):
        e = e + 0.5 * (h - np.roll(h, 1))
        h = h + 0.5 * (np.roll(e, -1) - e)
    assert np.array_equal(run["e"].gather(), e)
    assert np.array_equal(run["h"].gather(), h)


def test_masks_conditions_and_functions_in_half_precision(target):
    @ml.stencil
    def rule(new, u, wall):
        near = min(u[0, -1], u[0, 1])
        new[0, 0] = 0.0 if wall[0, 0] else max(near, sqrt(abs(u[1, 0]))) / 3 if u[0, 0] > near and not wall[1, 0] else u[0, 0] ** 3  # noqa: F821

    wall = np.random.default_rng(2).random((13, 21)) < 0.2
    grid = ml.Grid((13, 21), dtype="f2", boundary=("reflecting", 0.5))
    values = {"u": field(13, 21), "wall": wall, "swap": ("new", "u")}
    run = rule.on(grid).prepare(**values, fmad=False, targets=target).steps(2)
    assert run["u"].dtype == np.float16
    assert np.array_equal(run["u"].gather(), rule.on(grid).reference(2, **values)["u"])


def test_scalars_of_a_grid_of_halves_are_halves(target):
    """Kernels read them in single precision, so two of them do not lie in the memory of one."""

    @ml.stencil
    def rule(new, u, r, a):
        new[0, 0] = u[0, 0] + r * (u[-1, 0] - a[1] * u[0, 1]) + a[0]

    values = {"u": field(9, 14), "r": 0.1, "a": [0.3, 1.7], "swap": ("new", "u")}
    where = rule.on(ml.Grid((9, 14), dtype="f2", boundary="periodic"))
    run = where.prepare(**values, fmad=False, targets=target)
    assert np.array_equal(run.steps(3)["u"].gather(), where.reference(3, **values)["u"])
    changing = np.array([0.2, 0.4], np.float32)
    expected = where.reference(2, **{**values, "u": run["u"].gather(), "r": changing.astype(np.float16)})["u"]
    assert np.array_equal(run.steps(2, r=changing)["u"].gather(), expected)


def test_a_restart_gives_the_same_bits(target, tmp_path):
    grid = ml.Grid((11, 17), boundary="periodic")
    run = heat.on(grid).prepare(u=field(11, 17), r=0.2, swap=("new", "u"), targets=target)
    run.steps(3).save(tmp_path / "state.npz")
    run.steps(4)
    again = heat.on(grid).prepare(u=np.zeros((11, 17)), r=0.0, swap=("new", "u"), targets=target)
    again.restore(tmp_path / "state.npz")
    assert again.step == 3
    again.steps(4)
    assert np.array_equal(again["u"].gather(), run["u"].gather())
    other = measured.on(ml.Grid((4, 4))).prepare(u=np.zeros((4, 4)), swap=("new", "u"), targets=target)
    with pytest.raises(StencilError, match=r"was written by another stencil or grid: it has new f4\[11, 17\]"):
        other.restore(tmp_path / "state.npz")
    (tmp_path / "other").write_bytes(b"no snapshot")
    with pytest.raises(RecordError, match=r"is not a snapshot of a stencil"):
        again.restore(tmp_path / "other")
    with pytest.raises(RecordError, match=r"cannot be written"):
        again.save(tmp_path / "nowhere" / "state.npz")
    with pytest.raises(RecordError, match=r"none\.npz cannot be read: No such file or directory; pass the file that `save` wrote"):
        again.restore(tmp_path / "none.npz")


def test_ctrl_c_while_a_snapshot_is_written_leaves_no_part_of_it(target, tmp_path, monkeypatch):
    run = heat.on(ml.Grid((5, 7))).prepare(u=field(5, 7), r=0.2, swap=("new", "u"), targets=target)

    def stopped(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("memlane.timeloop.snapshots.os.fsync", stopped)
    with pytest.raises(KeyboardInterrupt):
        run.save(tmp_path / "state.npz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("count", [2.5, -1, "3", True, None])
def test_a_number_of_steps_is_a_whole_number(target, count):
    run = heat.on(ml.Grid((5, 7))).prepare(u=field(5, 7), r=0.2, swap=("new", "u"), targets=target)
    with pytest.raises(StencilError, match=re.escape(f"the number of steps must be a whole number of at least 0, not {count!r}")):
        run.steps(count)
    for name in ("every", "stop_on_nan"):
        if count is not None:
            with pytest.raises(StencilError, match=rf"`{name}`, .* must be a whole number of at least 1, not "):
                run.steps(2, **{name: count})
    assert run.step == 0
    assert run.steps(np.int64(2)).step == 2


def test_callbacks_and_a_stop_where_the_state_is_not_finite(target):
    run = heat.on(ml.Grid((8, 8))).prepare(u=field(8, 8), r=1e30, swap=("new", "u"), targets=target)
    seen = []
    with pytest.raises(StencilError, match=r"field '(new|u)' is not finite at cell \(1, 1\) after step 2 \(fields are looked at every 1"):
        run.steps(6, every=1, call=lambda run: seen.append(run.step), stop_on_nan=1)
    assert seen == [1]


def test_control_c_leaves_the_last_complete_step(target):
    u0, before = field(8, 8), signal.getsignal(signal.SIGINT)
    run = heat.on(ml.Grid((8, 8))).prepare(u=u0, r=0.1, swap=("new", "u"), fmad=False, targets=target)
    with pytest.raises(KeyboardInterrupt, match=r"stopped after step 4, whose fields can be read"):
        run.steps(100, every=4, call=lambda run: signal.raise_signal(signal.SIGINT))
    assert np.array_equal(run["u"].gather(), heat.on(ml.Grid((8, 8))).reference(4, u=u0, r=0.1, swap=("new", "u"))["u"])
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"u": np.zeros((5, 4))}, r"field 'u' has the shape \(5, 4\), and the grid \(8, 8\)"),
        ({"v": 1.0}, r"'v' is neither a field nor a scalar of this stencil; it has new, r, u"),
        ({"u": np.zeros((8, 8), "c8")}, r"field 'u' has elements of type f2, f4 or f8, not complex64"),
        ({"dtypes": {"w": "f8"}}, r"dtypes names 'w', which is not a field; the fields are new, u"),
        ({"swap": ("new", "w")}, r"swap names 'w', which is not a field"),
        ({"swap": ("u", "new")}, r"the first field of a swap is the one that is written; 'u' is not written"),
    ],
)
def test_values_that_do_not_fit(target, changes, sentence):
    values = {"u": np.zeros((8, 8), "f4"), "r": 0.1, "swap": ("new", "u"), **changes}
    with pytest.raises(StencilError, match=sentence):
        heat.on(ml.Grid((8, 8))).prepare(**values, targets=target)
    with pytest.raises(StencilError, match=r"scalar 'r' has no value: pass r=number to prepare"):
        heat.on(ml.Grid((8, 8))).prepare(u=np.zeros((8, 8)), swap=("new", "u"), targets=target)


@pytest.mark.parametrize(
    ("r", "sentence"),
    [
        (None, r"^scalar 'r' is 'None': give a real number$"),
        (1j, r"^scalar 'r' is '1j': give a real number$"),
        ("x", r"^scalar 'r' is 'x': give a real number$"),
        (1e300, r"^scalar 'r' is 1e\+300, too large for numbers of type f4: give ml.Grid the dtype 'f8'$"),
        (
            np.ones((8, 8), "f4"),
            r"^scalar 'r' is one number, and an array of shape \(8, 8\) was given: read r at a cell in the rule, as r\[0, 0\], to make",
        ),
        ([0.1, 0.2], r"^scalar 'r' is one number, and 2 were given: pass r=number to prepare, and numbers for each step to `steps`$"),
    ],
)
def test_scalars_that_are_no_numbers(target, r, sentence):
    with pytest.raises(StencilError, match=sentence):
        heat.on(ml.Grid((8, 8))).prepare(u=field(8, 8), r=r, swap=("new", "u"), targets=target)


def test_a_schedule_of_what_is_no_number(target):
    run = heat.on(ml.Grid((8, 8))).prepare(u=field(8, 8), r=0.1, swap=("new", "u"), targets=target)
    with pytest.raises(StencilError, match=r"^scalar 'r' is '\[None, 0.1\]': give a real number$"):
        run.steps(2, r=[None, 0.1])


@pytest.mark.parametrize("targets", ["emulator:h200", ["emulator:h200"], 2])
def test_names_of_targets_are_no_targets(targets):
    wrong = targets[0] if isinstance(targets, list) else targets
    said = rf"^{wrong!r} is not a target: pass what ml.target\('emulator:h200'\) or ml.devices\('cuda', 2\) returns$"
    with pytest.raises(StencilError, match=said):
        heat.on(ml.Grid((8, 8))).prepare(u=field(8, 8), r=0.1, swap=("new", "u"), targets=targets)


def test_a_single_device_says_that_it_exchanges_nothing(target):
    run = heat.on(ml.Grid((8, 8)), transport="nccl").prepare(u=field(8, 8), r=0.1, swap=("new", "u"), targets=target)
    assert run.transport_reason == "one device and one process exchange nothing"


def test_counts_point_at_the_rule(target):
    run = heat.on(ml.Grid((16, 64))).prepare(u=field(16, 64), r=0.1, swap=("new", "u"), targets=target)
    with ml.Counter() as counter:
        run.steps(1)
    (counts,) = counter.finish()
    lines = {one.site.line for one in counts.sites if one.site.file.endswith("test_run.py")}
    assert lines == {heat.rules[0].body[0].line}
    assert {one.site.op.split(".")[0] for one in counts.sites if one.site.line in lines} == {"ld", "st"}


def test_the_source_can_be_read(target):
    run = heat.on(ml.Grid((16, 64))).prepare(u=field(16, 64), r=0.1, swap=("new", "u"), targets=target, variant=Variant(4, (32, 1), 4))
    assert "heat_cell(" in run.source()
    assert "#line" not in run.source()
    assert "32 x 1 threads of 4 cells, 4 planes a block" in repr(run)


@pytest.mark.parametrize("shape", [(1_000_000, 8), (300_000, 300_000)])
def test_launches_of_long_grids_have_no_more_blocks_than_a_gpu_takes(shape):
    problem = Problem(heat.rules, ml.Grid(shape), (("new", "u"),))
    for variant in [*direct_variants(problem, heat.rules[0]), *fused_variants(problem, heat.rules[0])]:
        kernel = (DirectKernel if variant.steps == 1 else FusedKernel)(problem, heat.rules[0], variant)
        x, y, z = load_chip("h200").max_grid_dim
        assert kernel.grid[0] <= x
        assert kernel.grid[1] <= y
        assert kernel.grid[2] <= z
    with pytest.raises(StencilError, match=r"a grid has at most 2,147,418,112 cells along an axis, not 3,000,000,000"):
        ml.Grid(3_000_000_000)


def test_a_grid_that_no_memory_holds(target):
    shape = (1 << 23, 1 << 21)
    u = np.broadcast_to(np.float32(0), shape)
    with pytest.raises(DeviceError, match=r"no memory left for 'u' on emulator:h200: it needs 64 TiB, and 1\d\d GiB of 131 GiB are free"):
        heat.on(ml.Grid(shape)).prepare(u=u, r=0.1, swap=("new", "u"), targets=target)


def test_fields_of_other_libraries_are_taken_and_given(target):
    class OfAnotherLibrary:
        """As CuPy's arrays are: NumPy gets them by `get` only."""

        shape, dtype = (8, 8), np.dtype("f4")

        def get(self):
            return field(8, 8)

    run = heat.on(ml.Grid((8, 8))).prepare(u=OfAnotherLibrary(), r=0.1, swap=("new", "u"), targets=target)
    assert np.array_equal(np.asarray(run["u"]), field(8, 8))


def test_what_lies_on_the_target_is_copied_there(target, monkeypatch):
    u = target.array(field(8, 12))
    monkeypatch.setattr(ml.DeviceArray, "numpy", lambda _: pytest.fail("through the host"))
    run = heat.on(ml.Grid((8, 12))).prepare(u=u, r=0.1, swap=("new", "u"), targets=target)
    monkeypatch.undo()
    assert np.array_equal(run["u"].gather(), field(8, 12))
    run.steps(2)
    assert np.array_equal(u.numpy(), field(8, 12))  # the run has a copy


def test_a_field_may_be_called_as_the_next_of_another(target):
    """It has the type that it was given, not that of the other."""

    @ml.stencil
    def half(u_next, u):
        u_next[0, 0] = 0.5 * (u[0, -1] + u[0, 1])

    grid = ml.Grid((4, 8), boundary="periodic")
    run = half.on(grid).prepare(u=field(4, 8), dtypes={"u_next": "f8"}, targets=target).steps(1)
    found = run["u_next"].gather()
    assert found.dtype == np.float64
    assert np.array_equal(found, half.on(grid).reference(1, u=field(4, 8), dtypes={"u_next": "f8"})["u_next"])


def test_variants_that_cannot_be(target):
    values = {"u": field(16, 64), "r": 0.1, "swap": ("new", "u"), "targets": target}
    with pytest.raises(StencilError, match=r"2 steps cannot share a launch here, because axis 0 has a reflecting face"):
        heat.on(ml.Grid((16, 64), boundary="reflecting")).prepare(**values, variant=Variant(4, (32, 1), 8, 1, 2))
    with pytest.raises(StencilError, match=r"has no cells left for results"):
        heat.on(ml.Grid((16, 64))).prepare(**values, variant=Variant(1, (32, 1), 8, 1, 16))
    with pytest.raises(StencilError, match=r"a variant is a Variant, 'timed', or None"):
        heat.on(ml.Grid((16, 64))).prepare(**values, variant="fast")


def test_the_model_of_an_h200_expects_several_steps_to_pay():
    (rule,) = heat.rules
    problem = Problem((rule,), ml.Grid((16384, 16384)), (("new", "u"),))
    best, *_ = estimates(problem, rule, load_chip("h200"))
    assert best.variant.steps > 1
    single = next(one for one in estimates(problem, rule, load_chip("h200")) if one.variant.steps == 1)
    assert single.cells_per_s < load_chip("h200").copy_gb_per_s * 1e9 / 8 < best.cells_per_s


def test_generated_code_is_compiled_once_for_all_processes(target, monkeypatch, tmp_path):
    monkeypatch.setenv("MEMLANE_CACHE", "1")
    monkeypatch.setenv("MEMLANE_CACHE_DIR", str(tmp_path))
    values = {"u": field(12, 20), "r": 0.1, "swap": ("new", "u"), "targets": target}
    first = heat.on(ml.Grid((12, 20))).prepare(**values).steps(2)
    monkeypatch.setattr(Code, "module", lambda *_: pytest.fail("compiled again"))
    again = heat.on(ml.Grid((12, 20))).prepare(**values).steps(2)
    assert np.array_equal(first["u"].gather(), again["u"].gather())
    with ml.Counter() as counter:
        again.steps(1)
    (counts,) = counter.finish()
    assert heat.rules[0].body[0].line in {one.site.line for one in counts.sites if one.site.file.endswith("test_run.py")}


def test_the_fastest_of_a_few_is_remembered(target, monkeypatch, tmp_path):
    monkeypatch.setenv("MEMLANE_CACHE", "1")
    monkeypatch.setenv("MEMLANE_CACHE_DIR", str(tmp_path))
    candidates = [Variant(4, (32, 1), 4), Variant(4, (32, 2), 8, 1, 2)]
    monkeypatch.setattr(variants, "direct_variants", lambda *_: candidates[:1])
    monkeypatch.setattr(variants, "estimates", lambda *_: [Estimate(candidates[1], 1e9, "memory")])
    problem, u = Problem(heat.rules, ml.Grid((12, 40)), (("new", "u"),)), field(12, 40)
    arrays = {"u": upload(target, u, (12, 40), "f4", "u"), "new": blank(target, (12, 40), "f4", "new")}
    chosen = variants._timed(problem, target, True, arrays)
    assert "the fastest of 2; others: " in chosen.reason
    assert np.array_equal(arrays["u"].numpy()[:, :40], u)  # timing leaves the fields as they are
    monkeypatch.setattr(variants, "_cells_per_s", lambda *_: pytest.fail("timed again"))
    again = variants._timed(problem, target, True, arrays)
    assert [one.variant for one in again.code.kernels] == [one.variant for one in chosen.code.kernels]
    assert "timed before" in again.reason
    monkeypatch.setattr(variants, "_GENERATING", Sources("errors.py"))  # as after an update that generates other kernels
    monkeypatch.setattr(variants, "_cells_per_s", lambda *_: 1e9)
    assert "timed before" not in variants._timed(problem, target, True, arrays).reason
