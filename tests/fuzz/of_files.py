"""Record files, counts as JSON, chip files and arrays."""

from __future__ import annotations

import base64
import io
import json
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import numpy as np

from memlane import network
from memlane.chip import Chip, access, batch, from_file, resident_blocks
from memlane.cli.specs import parse_argument
from memlane.diagnose import compare, explain
from memlane.export import export
from memlane.plan import Buffer, Copy, HostCall, KernelRef, Launch, Plan, Repeat, Scalar, Step, Together, races
from memlane.plan import from_json as from_plan_json
from memlane.plan import to_json as to_plan_json
from memlane.record import Call, Footprint, Perturbation, Sample, Skipped, Staging, Trace, load
from memlane.record.example import AccessExample
from memlane.record.header import FORMAT, FORMAT_KEY, HEADER_KEY, WARPS_KEY, decode, encode
from memlane.report import counts_document, render_findings, render_trace, summary_document, to_json, to_text
from memlane.report.html import render_page
from tests.fuzz.mutations import mutate_tree, mutated_bytes, mutated_tokens, tokens
from tests.fuzz.of_ptx import ROOT
from tests.synthetic import counts, stalls, transpose


@cache
def folder() -> Path:
    """Return a folder for inputs that have to be files; it is gone when the process ends."""
    kept = tempfile.TemporaryDirectory(prefix="memlane-fuzz-")
    _KEPT.append(kept)
    return Path(kept.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []

# -- records ---------------------------------------------------------------------------------------------------------------------


@cache
def full_trace() -> Trace:
    """Return a trace in which every optional field is there."""
    plain = transpose(driver="580.1, CUDA 13.0", skipped=(Skipped("f", "ld.global.f32", "a.cu", 3, "why", ("k",)),))
    example = AccessExample(0, 1, "global", "store", True, 0, 1, 2, 0xFFFFFFFF, 4, tuple(range(256, 384, 4)), 4, 4)
    foot = Footprint(32, 0, 1024, 8)
    launch = replace(
        plain.launches[1],
        perturbation=Perturbation(foot, replace(foot, registers=40), "", 100.0, 150.5, 3),
        sample=Sample(4, 2, ((0, 1),), ((0, 2),), ((0, 4),), (0, 9), 2, 7),
        staging=Staging("shared", 8, "whichever is faster"),
        resident_blocks=8,
        cluster=(1, 1, 1),
        failed="it broke",
        accesses_not_kept=2,
    )
    called = replace(plain.sites[1], calls=(Call("f(int)", "a.cu", 7),), address_parameters=(0,), address_loads=(1, 2), copies=2)
    sites = (plain.sites[0], called, *plain.sites[2:])
    return replace(plain, sites=sites, launches=(plain.launches[0], launch), examples=(example,))


@cache
def record_files() -> tuple[bytes, ...]:
    """Return record files as bytes."""
    empty = replace(transpose(), table=transpose().table.slice(0, 0), warps=transpose().warps[:0])
    found = []
    for trace in (transpose(), stalls(), full_trace(), empty):
        trace.save(folder() / "whole.parquet", force=True)
        found.append((folder() / "whole.parquet").read_bytes())
    return tuple(found)


def mutated_record(random: Random, files: Sequence[bytes]) -> bytes:
    """A record file with some bytes changed, most often in its footer, which no checksum protects."""
    data = random.choice(files)
    if random.random() < 0.7:
        footer = int.from_bytes(data[-8:-4], "little")
        head, tail = data[: -8 - footer], data[-8 - footer :]
        return head + mutated_bytes(random, tail, random.choice(files))
    return mutated_bytes(random, data, random.choice(files))


def read_record(data: bytes) -> Trace:
    """Load a record file."""
    path = folder() / "mutated.parquet"
    path.write_bytes(data)
    return load(path)


@cache
def headers() -> tuple[str, ...]:
    """Return headers of record files as JSON."""
    packed = [encode(trace)[HEADER_KEY] for trace in (transpose(), full_trace())]
    return tuple(zlib.decompress(base64.b64decode(text)).decode() for text in packed)


def mutated_header(random: Random, texts: Sequence[str]) -> tuple[str, str]:
    """The header and the packed warps, one of them changed: as a tree mostly, now and then as a text or as bytes."""
    text, warps = random.choice(texts), _warps()
    way = random.random()
    if way < 0.8:
        tree = json.loads(text)
        mutate_tree(random, tree)
        text = json.dumps(tree)
    elif way < 0.95:
        text = mutated_tokens(random, tokens(text), tokens(text))
    else:
        warps = _packed(mutated_bytes(random, zlib.decompress(base64.b64decode(warps)), b"\xff" * 64))
    return text, warps


@cache
def _metadata() -> dict[str, str]:
    return encode(transpose())


def _warps() -> str:
    return _metadata()[WARPS_KEY]


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 1)).decode("ascii")


def metadata_of(given: tuple[str, str]) -> dict[str, str]:
    """Return the metadata of a file with this header."""
    header = given[0].encode("utf-8", errors="surrogatepass")
    return {FORMAT_KEY: str(FORMAT), HEADER_KEY: _packed(header), WARPS_KEY: given[1]}


def read_header(given: tuple[str, str]) -> tuple[str, str]:
    """Decode a header as the reader of record files does, which calls what is wrong with it damage."""
    try:
        decode(metadata_of(given))
    except (KeyError, OverflowError, RecursionError, TypeError, ValueError, zlib.error):
        read_record(_file_with(metadata_of(given)))
        raise AssertionError("the header was refused, the file with it was not") from None
    return given


def _file_with(metadata: dict[str, str]) -> bytes:
    """A record file whose metadata are exchanged in place: the values are strings of the footer, each behind its length."""
    data = record_files()[0]
    size = int.from_bytes(data[-8:-4], "little")
    body, footer = data[: -8 - size], data[-8 - size : -8]
    for key, value in _metadata().items():
        old, new = value.encode(), metadata[key].encode()
        footer = footer.replace(_varint(len(old)) + old, _varint(len(new)) + new)
    return body + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def _varint(number: int) -> bytes:
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def use_header(given: tuple[str, str]) -> None:
    """Load a file with the header, and do what can be done with a trace."""
    use_trace(read_record(_file_with(metadata_of(given))))


def use_trace(trace: Trace) -> None:
    """Show, explain, export and draw a trace, and save it again."""
    to_text(render_trace(trace))
    to_text(render_findings(explain(trace)))
    to_json(summary_document(trace))
    str(compare(trace, trace))
    for name in ("csv", "clog2", "perfetto"):
        export(trace, name, folder() / f"out.{name}", force=True)
    render_page(trace)
    trace.save(folder() / "again.parquet", force=True)
    load(folder() / "again.parquet")


# -- counts as JSON --------------------------------------------------------------------------------------------------------------


@cache
def count_documents() -> tuple[str, ...]:
    """Return what `memlane count --json` writes."""
    entries = full_trace().launches[0].counts
    launches = [counts(*entries), counts(*full_trace().launches[1].counts)]
    return (to_json(counts_document(launches, {"transpose.cu": "a\nb\nc\nd"})),)


def mutated_document(random: Random, texts: Sequence[str]) -> str:
    """A JSON text, changed as a tree mostly."""
    text = random.choice(texts)
    if random.random() < 0.85:
        tree = json.loads(text)
        mutate_tree(random, tree)
        return json.dumps(tree)
    return mutated_tokens(random, tokens(text), tokens(text))


def read_document(text: str) -> object:
    """Compare a file of counts with itself."""
    path = folder() / "mutated.json"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    return compare(path, path)


# -- chips -----------------------------------------------------------------------------------------------------------------------


@cache
def chip_files() -> tuple[tuple[str, ...], ...]:
    """Return chip files as tokens: those that say all, without their comments, and short ones that are like another."""
    data = ROOT / "src" / "memlane" / "chip" / "data"
    texts = [(data / f"{name}.toml").read_text(encoding="utf-8") for name in ("h200", "gtx480", "gtx680", "s1070")]
    short = ["\n".join(line.partition(" #")[0] for line in text.split("\n") if line.strip() and line[0] != "#") for text in texts]
    like = 'like = "h200"\n[banks]\nbanks = { value = 16, unit = "", source = "assumed: x" }\n[chip]\n'
    like += 'l1_bytes = { value = 0, unit = "bytes", source = "assumed: x" }\nsm_count = { value = 7, unit = "", source = "x" }\n'
    like += '[sources]\nx = "cited: y"\n[coalescing]\nlanes_4 = { value = 16, unit = "lanes", source = "x" }\n'
    return tuple(tuple(tokens(text)) for text in [*short, *([like] * 8)])


def mutated_chip(random: Random, texts: Sequence[Sequence[str]]) -> str:
    """The text of a chip file with some changes."""
    return mutated_tokens(random, random.choice(texts), random.choice(texts))


def read_chip(text: str) -> Chip:
    """Read a chip file, past the memory of those that were read."""
    path = folder() / f"chip{next(_NUMBERS)}.toml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
    try:
        return from_file(path)
    finally:
        path.unlink()


_NUMBERS = iter(range(1 << 60))
_ADDRESSES = np.arange(32, dtype=np.int64) * 12


def use_chip(chip: Chip) -> None:
    """Ask a chip for everything that is computed from its numbers."""
    active = 0xFFFF00FF
    for nbytes in (1, 4, 8, 16):
        for kind in ("load", "store", "atomic", "load_past_l1"):
            one = access.transactions(chip, _ADDRESSES * nbytes, active, nbytes, kind)
            many = batch.transactions(chip, _ADDRESSES[None, :] * nbytes, np.array([active], np.uint32), np.array([nbytes]), kind)
            assert one == many[0], (one, many)
            access.wavefronts(chip, _ADDRESSES * nbytes, active, nbytes, kind)
            batch.wavefronts(chip, _ADDRESSES[None, :] * nbytes, np.array([active], np.uint32), np.array([nbytes]), kind)
    resident_blocks(chip, 256, 32, 1024)
    str((chip.launch_limits, chip.max_warps_per_sm, chip.assumed))
    for pipe in ("alu", "memory"):
        chip.issue_interval(pipe)


# -- networks --------------------------------------------------------------------------------------------------------------------


@cache
def network_files() -> tuple[tuple[str, ...], ...]:
    """Return network files as tokens, without their comments."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(network.SHIPPED.glob("*.toml"))]
    short = ["\n".join(line.partition(" #")[0] for line in text.split("\n") if line.strip() and line[0] != "#") for text in texts]
    return tuple(tuple(tokens(text)) for text in short)


def read_network(text: str) -> network.Network:
    """Read a network file."""
    path = folder() / f"network{next(_NUMBERS)}.toml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
    try:
        return network.from_file(path)
    finally:
        path.unlink()


def use_network(one: network.Network) -> None:
    """Ask a network for the times of exchanges, which are no less for more bytes or more neighbours than without any."""
    for link in (*one.inside.values(), *one.between.values()):
        for neighbours in (0, 1, 6):
            for nbytes in (0, 1, 4096, 1 << 40):
                us = link.exchange_us(nbytes, neighbours)
                assert us >= 0, (link, us)
                assert us == 0 or (neighbours and nbytes), (link, us)
    str((one.assumed, one.transports))


# -- arrays ----------------------------------------------------------------------------------------------------------------------


@cache
def arrays() -> tuple[bytes, ...]:
    """Return `.npy` files as bytes."""
    found = []
    for array in (
        np.arange(4, dtype=np.float32),
        np.zeros((2, 2), np.int64),
        np.array(3, np.uint8),
        np.asfortranarray(np.ones((3, 2), "<f4")),
    ):
        stream = io.BytesIO()
        np.save(stream, array)
        found.append(stream.getvalue())
    return tuple(found)


def mutated_array(random: Random, files: Sequence[bytes]) -> bytes:
    """A `.npy` file, changed in its header as a text or anywhere as bytes."""
    data = random.choice(files)
    if random.random() < 0.6:
        head = mutated_tokens(random, tokens(data[10:128].decode("latin-1")), ["'descr'", "(1,)", "|O", "<U9", "True", ">f4"])
        return data[:10] + head.encode("utf-8", errors="surrogatepass") + data[128:]
    return mutated_bytes(random, data, random.choice(files))


def read_array(data: bytes) -> object:
    """Read an array as `--arg f4[]=FILE.npy` does."""
    path = folder() / "mutated.npy"
    path.write_bytes(data)
    return parse_argument(f"f4[]={path}")


# -- plans -----------------------------------------------------------------------------------------------------------------------


@cache
def plan_documents() -> tuple[str, ...]:
    """Return plans as JSON, which together have every kind of step."""
    a, b, host, flag = Buffer("a", 4096, 0), Buffer("b", 4096, 1), Buffer("host", 4096, "pinned"), Buffer("flag", 4, "host")
    kernel = KernelRef("0123", "work", "work<4>")
    whole, odd = a.view("f4"), a.view("f4")[1::2]
    one = Launch(kernel, (4, 1, 1), (32, 2, 1), (whole, Scalar(1, 2), 3, 2.5), 16, (2, 1, 1), (whole,), (odd,))
    call = HostCall("math:sqrt", (host.view("f8", (8, 8)),), (host.view(),), (flag.view("i4"),))
    turns = (
        Step(one, 0, 1),
        Step(Copy(b.view("f4")[::2], odd), 0, 2, (0,), (0,), "out"),
        Step(Together(((0, one), (1, Launch(kernel, (1, 1, 1), (1, 1, 1), (b.view(),))))), None, 0, (1,)),
        Step(call, None, 0, (1,)),
    )
    other = Buffer("other", 4096, 0)
    loop = Repeat(turns, 8, ((a, other),), flag.view("i4"), 2, (0,), "turns")
    inner = Repeat((Step(one, 0), Repeat((Step(Copy(other.view(), a.view()), 0),), 3, after=(0,))), 1000)
    first = Step(Copy(a.view(), host.view()), 0, 3)
    return tuple(to_plan_json(Plan(items)) for items in ((first, loop), (first, inner), (first, Step(one, 0, after=(0,)))))


def use_plan(plan: Plan) -> None:
    """Print a plan, look for its races, and write it and read it again."""
    str((plan, plan.devices, plan.peers, races(plan)[:1]))
    assert from_plan_json(to_plan_json(plan)) == plan
