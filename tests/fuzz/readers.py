"""The table of readers: what reads something from outside, what is mutated for it, and what follows."""

from __future__ import annotations

from memlane.cli.specs import parse_argument
from memlane.plan import from_json
from memlane.sass.listing import parse_listing
from tests.fuzz import of_code, of_files, of_ptx, of_words
from tests.fuzz.engine import Reader

READERS = {
    one.name: one
    for one in (
        Reader("ptx", of_ptx.corpus, of_ptx.mutated, of_ptx.read, of_ptx.follow, short=600),
        Reader("ptx without checks", of_ptx.corpus, of_ptx.mutated, of_ptx.read_leniently, of_ptx.look_at, short=600),
        Reader("ptx instrumented", of_ptx.corpus, of_ptx.mutated, of_ptx.read_leniently, of_ptx.instrument, short=20),
        Reader("ptx lowered", of_ptx.corpus, of_ptx.mutated, of_ptx.read_leniently, of_ptx.lower, seconds=60.0, short=4),
        Reader("program", of_code.programs, of_code.mutated_text, of_code.read_program, short=200),
        Reader("cubin", of_code.cubins, of_code.mutated_cubin, of_code.read_cubin, short=1500),
        Reader("listing", of_code.listings, of_code.mutated_text, parse_listing, of_code.use_listing, short=200),
        Reader("record", of_files.record_files, of_files.mutated_record, of_files.read_record, of_files.use_trace, 10, short=150),
        Reader("record header", of_files.headers, of_files.mutated_header, of_files.read_header, of_files.use_header, 100, short=100),
        Reader("counts", of_files.count_documents, of_files.mutated_document, of_files.read_document, short=300),
        Reader("chip", of_files.chip_files, of_files.mutated_chip, of_files.read_chip, of_files.use_chip, short=150),
        Reader("network", of_files.network_files, of_files.mutated_chip, of_files.read_network, of_files.use_network, short=300),
        Reader("plan", of_files.plan_documents, of_files.mutated_document, from_json, of_files.use_plan, short=300),
        Reader("array", of_files.arrays, of_files.mutated_array, of_files.read_array, short=400),
        Reader("name", of_code.names, of_code.mutated_text, of_code.read_name, short=5000),
        Reader("profile", of_code.profiles, of_code.mutated_text, of_code.read_profile, short=5000),
        Reader(
            "argument",
            of_words.arguments,
            of_words.mutated_argument,
            parse_argument,
            of_words.use_argument,
            words=True,
            short=400,
        ),
        Reader("layout", of_words.layouts, of_code.mutated_text, of_words.read_layout, words=True, short=200),
        Reader("window", of_words.windows, of_code.mutated_text, of_words.read_windows, words=True, short=1000),
        Reader("format", of_words.formats, of_words.mutated_format, of_words.read_format, short=3000),
        Reader("target", of_words.targets, of_code.mutated_text, of_words.read_target, words=True, short=500),
    )
}
"""By name."""
