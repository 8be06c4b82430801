"""The modules that run a launch do not import each other in circles, type-only imports included."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def ordered(imports: dict[str, set[str]]) -> list[str]:
    """Modules, each behind those that it imports; raises CycleError."""
    return list(TopologicalSorter(imports).static_order())


def test_no_module_of_emulate_run_reaches_itself() -> None:
    graph = grimp.build_graph("memlane", exclude_type_checking_imports=False, cache_dir=None)
    own = {name for name in graph.modules if name.startswith("memlane.emulate.run.")}
    assert {"memlane.emulate.run.device", "memlane.emulate.run.execution"} <= own
    # A circle through other packages counts too: whatever leads from a module of run back to run is kept.
    between = {name for name in graph.find_upstream_modules("memlane.emulate.run", as_package=True) if name.startswith("memlane.emulate.")}
    around = {name for name in between | own if name in own or graph.find_upstream_modules(name) & own}
    ordered({name: graph.find_modules_directly_imported_by(name) & around for name in around})


def test_a_circle_is_found() -> None:
    with pytest.raises(CycleError):
        ordered({"a": {"b"}, "b": {"a"}})
