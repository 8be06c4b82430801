"""The lab of latencies, on the emulator, whose clock is made of the numbers of its chip file: what comes out is known beforehand."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from memlane.audit import prove
from memlane.compile import assemble
from memlane.errors import CommandError
from memlane.instrument import Selection, TraceOptions, trace
from memlane.lab import LABS, Request
from memlane.lab.latency import chains
from memlane.lab.latency.chains import TURN, Chain
from memlane.lab.latency.lab import CASES, chip_latencies
from memlane.lab.latency.measure import Effort, fences, measure
from memlane.lab.latency.places import NAMES, Place, places
from memlane.lab.result import Row
from memlane.launch import Target
from memlane.sass import disassemble
from memlane.targets import target

pytestmark = pytest.mark.slow

TRUTH_ALONE = Effort(16, 1, (4, 12), ())
WITH_DEPENDENT = Effort(8, 1, (4, 12), ("dependent",))


@pytest.fixture(scope="module")
def emulator() -> Target:
    return target("emulator:h200", deterministic=True)


def place(emulator: Target, name: str) -> Place:
    return next(one for one in places(emulator, quick=True) if one.name == name)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith(("store", "reduction", "then load"))])
def test_the_chain_average_is_the_latency_in_the_chip_file(emulator: Target, name: str) -> None:
    one = place(emulator, name)
    known = {"local": "l1", "constant miss": "constant"}  # on the emulator local memory hits L1, and constants never miss
    expected = getattr(emulator.chip.latency, known.get(name, one.field))
    assert measure(emulator, one, TRUTH_ALONE).truth == pytest.approx(round(expected), abs=1)


def test_what_brings_nothing_is_issued_at_once(emulator: Target) -> None:
    for name in ("global store", "shared reduction"):
        assert measure(emulator, place(emulator, name), TRUTH_ALONE).truth < 6


def test_another_chip_has_other_latencies() -> None:
    other = target("emulator:a100", deterministic=True)
    assert round(other.chip.latency.shared) != round(target("emulator:h200").chip.latency.shared)
    assert measure(other, place(other, "shared"), TRUTH_ALONE).truth == pytest.approx(round(other.chip.latency.shared), abs=1)


SLOW = ("shared atomic", "texture")


@pytest.mark.parametrize(
    "name", ["shared", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)  # addresses of 64 and of 32 bits, and a vector
def test_dependent_less_its_window_is_the_truth(emulator: Target, name: str) -> None:
    found = measure(emulator, place(emulator, name), WITH_DEPENDENT)
    said = found.recorded["dependent"]
    assert said.window is not None
    assert 5 < said.window < 25
    assert said.mean - said.window == pytest.approx(found.truth, abs=1)
    assert set(said.completeness.values()) == {"complete"}


def test_a_scheme_that_does_not_wait_has_the_window_of_two_clock_reads(emulator: Target) -> None:
    measured = measure(emulator, place(emulator, "shared"), Effort(8, 1, (4, 12), ("simple",)))
    said = measured.recorded["simple"]
    assert said.window == pytest.approx(emulator.chip.latency.clock, abs=1)
    assert said.mean - said.window < measured.truth / 3, "what is left of the access before, behind the work of its record"
    assert set(said.completeness.values()) == {"issue-only"}


@pytest.mark.slow
def test_a_store_and_the_load_behind_it_are_told_apart(emulator: Target) -> None:
    said = measure(emulator, place(emulator, "shared store then load"), WITH_DEPENDENT).recorded["dependent"]
    assert said.completeness == {"store": "issue-only", "load": "complete"}
    assert said.parts["load"] > emulator.chip.latency.shared > said.parts["store"]
    assert said.mean == pytest.approx(sum(said.parts.values()))


@pytest.mark.slow
def test_fences_of_the_block_do_not_wait_and_a_predicate_does(emulator: Target) -> None:
    found = {one.fence: one for one in fences(emulator, place(emulator, "L1"), 34.4, Effort(4, 1, (4, 12), ()))}
    assert [fence for fence, one in found.items() if not one.waits] == ["nothing", "membar.cta"]
    assert found["membar.cta"].recorded - found["membar.cta"].empty < 3
    assert found["a predicate on the value"].recorded - found["a predicate on the value"].empty == pytest.approx(
        34, abs=1
    )  # an access to L1
    assert found["membar.gl"].empty == pytest.approx(emulator.chip.latency.fence_device, abs=2)


OPCODES = {
    chains.CONSTANT: "LDC",
    chains.SHARED_ATOMIC: "ATOMS",
    chains.GLOBAL_ATOMIC: "ATOMG",
}


def walk_of(chain: Chain) -> list[str]:
    """The opcodes of the walk, assembled for sm_90."""
    program = disassemble(assemble(chain.module(), arch="sm_90").data)
    return [one.opcode for one in program.functions["walk"].instructions]


@pytest.mark.parametrize("chain", OPCODES, ids=lambda chain: chain.name)
def test_the_assembler_keeps_every_access_of_a_chain(chain: Chain) -> None:
    opcodes = walk_of(chain)
    timed = opcodes[opcodes.index("CS2R") :]
    assert Counter(timed)[OPCODES[chain]] == TURN


def test_a_load_and_its_fence_stand_between_the_clock_reads() -> None:
    opcodes = walk_of(chains.fenced(chains.GLOBAL, "membar.cta"))
    reads = [place for place, opcode in enumerate(opcodes) if opcode == "CS2R"]
    between = [opcodes[start:end] for start, end in pairwise(reads)]
    windows = [part for part in between if "LDG" in part]
    assert len(windows) == TURN
    assert all(part.index("LDG") < part.index("MEMBAR") for part in windows)


def test_dependent_is_proved_on_the_chain_of_constants() -> None:
    traced = trace(chains.CONSTANT.module(), TraceOptions("dependent", Selection(lines=chains.CONSTANT.timed_lines)))
    proofs = prove(traced, assemble(traced.module, arch="sm_90").data)
    assert [proof.completeness for proof in proofs] == ["complete"] * TURN


def test_rings_fit_where_they_are_to_lie(emulator: Target) -> None:
    chip = emulator.chip
    found = {one.name: one for one in places(emulator, quick=False)}
    assert tuple(found) == NAMES
    assert found["L1"].rows * found["L1"].row_bytes < chip.l1_bytes / 4
    assert chip.l1_bytes * 4 < found["L2"].rows * found["L2"].row_bytes < chip.l2_bytes / 2
    assert found["DRAM"].rows * found["DRAM"].row_bytes < chip.dram_bytes / 8
    for one in found.values():
        if one.rows:
            walked = {step * one.stride % one.rows for step in range(min(one.rows, 5000))}
            assert len(walked) == min(one.rows, 5000)  # no row is met twice before all were


def test_the_result_has_a_row_for_the_truth_and_one_for_each_scheme(emulator: Target) -> None:
    result = LABS["latency"].run(emulator, Request(quick=True, only=("shared",)))
    assert [(row.case, row.metric, row.holds) for row in result.rows] == [
        ("shared", "latency, chain average", True),
        ("dependent, shared", "error of the mean", True),
    ]
    assert result.rows[1].peer["recorded"] - result.rows[1].peer["window"] == pytest.approx(result.rows[1].peer["net"])
    assert [len(line) for line in result.tables["latency"].lines] == [len(result.tables["latency"].head)]
    assert set(result.figures["latency"].series) == {"truth", "dependent"}


def test_a_case_that_is_not_known_is_named(emulator: Target) -> None:
    with pytest.raises(CommandError, match=r"--only L4: no such case; choose from: shared, L1, .*fences, DRAM"):
        LABS["latency"].run(emulator, Request(only=("L4",)))
    assert len(CASES) == len(NAMES) + 4


def test_the_chip_file_gets_truths_alone() -> None:
    rows = [Row("L2", "latency, chain average", 281.77, "cycles"), Row("dependent, L2", "error of the mean", 3.0, "cycles")]
    rows += [Row("local", "latency, chain average", 34.0, "cycles"), Row("constant miss", "latency, chain average", 104.2, "cycles")]
    assert chip_latencies(rows) == {"l2": 281.8, "constant_miss": 104.2}
