"""Make the tables about the labs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from docs_cells import Document, ResultRow, cell, number, table, verdict

from memlane.lab.figures import Figure, Lines


def latency(document: Document) -> str:
    """Return a line for each access: the truth, and what each scheme recorded of it, raw and less its window."""
    rows = document["rows"]
    truths = [row for row in rows if row["metric"] in (_LATENCY, "from issue to issue")]
    by_case = {row["case"]: row for row in rows if "recorded" in row["peer"]}
    schemes = list(dict.fromkeys(case.partition(", ")[0] for case in by_case))
    lines = []
    for truth in truths:
        said = [by_case.get(f"{scheme}, {truth['case']}") for scheme in schemes]
        cells = [f"{number(row['peer']['recorded'])} - {number(row['peer']['window'])}" if row else "-" for row in said]
        held = next((verdict(row) for row in said if row and row["reach"] is not None), "compares")
        error = next((f"{row['peer']['error']:+.1f}" for row in said if row and "error" in row["peer"]), "-")
        mark = "" if truth["metric"] == _LATENCY else " (from issue to issue)"
        lines.append([truth["case"], f"{number(truth['value'])}{mark}", *cells, error, held])
    return table(["access", "truth", *schemes, f"error of {schemes[0] if schemes else 'a scheme'}", "reach"], lines)


_LATENCY, _BETWEEN = "latency, chain average", "between two clock reads"


def fences(document: Document) -> str:
    """Return a line for each fence: what lies between the clock reads at each level, and whether it waits."""
    rows = {row["case"]: row for row in document["rows"] if row["metric"] == _BETWEEN}
    kinds, levels = (list(dict.fromkeys(case.rpartition(", ")[part] for case in rows)) for part in (0, 2))
    lines = [["**the load itself**", *(number(rows[f"{kinds[0]}, {level}"]["peer"]["truth"]) for level in levels), "", ""]] if rows else []
    for kind in kinds:
        of = [rows[f"{kind}, {level}"] for level in levels]
        waits = [row["note"].startswith("waits") for row in of]
        says = (
            "yes" if all(waits) else "**no**" if not any(waits) else "at " + ", ".join(x for x, y in zip(levels, waits, strict=True) if y)
        )
        empty = sorted(row["peer"]["without a load"] for row in of)
        alone = number(empty[0]) if empty[0] == empty[-1] else f"{number(empty[0])} to {number(empty[-1])}"
        lines.append([f"`{kind}`" if "." in kind else kind, *(number(row["value"]) for row in of), alone, says])
    return table(["between the load and the second clock read", *levels, "without a load", "as long as the load"], lines)


def shift_overview(count: str, *addresses: str) -> Callable[[Document], str]:
    """Return a table of cycles without a shift, and the speed-up by each layout, of accesses whose case ends in these words."""

    def shown(document: Document) -> str:
        lines, names = [], list[str]()
        for address in addresses:
            for row in document["rows"]:
                case = row["case"].removesuffix(f", {count}, {address}")
                if row["metric"] == "cycles without a shift" and case != row["case"]:
                    names = list(row["peer"])
                    gained = [number(row["peer"][name]) for name in names]
                    lines.append([case, *([address] if len(addresses) > 1 else []), number(row["value"]), *gained])
        return table(["access", *(["address"] if len(addresses) > 1 else []), "none, cycles", *names], lines)

    return shown


def shift_tables(document: Document) -> str:
    rows = [row for row in document["rows"] if row["metric"] == "speed-up over no shift by the place of the table"]
    places = list(rows[0]["peer"]) if rows else []
    return table(["access", *places], [[row["case"], *(number(row["peer"][place]) for place in places)] for row in rows])


def shift_reach(document: Document) -> str:
    """Return the reaches, and how cycles and wavefronts compare."""
    rows = [row for row in document["rows"] if row["reach"] is not None or row["metric"].startswith("cycles of an access")]
    lines = []
    for row in rows:
        within = f" ± {number(row['peer']['within'])}" if "within" in row["peer"] else ""
        lines.append([row["case"], row["metric"], number(row["value"]) + within, verdict(row)])
    return table(["access", "what", "", "reach"], lines)


def shift_kernels(document: Document) -> str:
    lines = []
    for row in document["rows"]:
        peer = row["peer"]
        if "blocks without" in peer:
            fit = f"{number(peer['blocks'])}, {number(peer['blocks without'])}"
            wavefronts = f"{number(peer['wavefronts'])}, {number(peer['without'])}"
            lines.append([row["case"], number(row["value"]), number(peer["us"]), wavefronts, fit, row["note"]])
    return table(["kernel, tile", "speed-up", "time, us", "wavefronts, without", "blocks, without", "layout"], lines)


def shift_warps(document: Document) -> str:
    """Return a line for each kind of access, a column for each number of warps."""
    by_access: dict[str, dict[str, str]] = {}
    for row in document["rows"]:
        if row["metric"] == "cycles of the block for each wavefront":
            access, _, warps = row["case"].rpartition(", ")
            by_access.setdefault(access, {})[warps] = number(row["value"])
    columns = list(next(iter(by_access.values()), {}))
    return table(["access", *columns], [[access, *(cells.get(one, "-") for one in columns)] for access, cells in by_access.items()])


def shift_wavefronts(document: Document) -> str:
    """Return for each operation how many accesses differ from the rule in time, and in the profiler's count."""
    rows = document["rows"]
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        time, *count = [row for row in rows if row["case"] == case]
        counted = cell(count[0]["value"] if count else None)
        lines.append([case, number(len(time["peer"])), cell(time["value"]), counted, verdict(time)])
    return table(["operation, bytes", "accesses", "off the rule in time", "counted otherwise by the profiler", "reach"], lines)


def shift_published(document: Document) -> str:
    """Return a table of one access, reads of 8 bytes, next to the published numbers."""
    lines = []
    for row in document["rows"]:
        if row["metric"] == "speed-up over no shift, one access":
            peer = row["peer"]
            cells = [number(peer[name]) for name in ("ras", "bare clock, rap")]
            lines.append(
                [row["case"].removesuffix(", rap"), number(row["value"]), *cells, number(peer["published"]) if "published" in peer else "-"]
            )
    return table(["access", "rap", "ras", "rap, bare clock reads", "published"], lines)


def volume_claims(document: Document) -> str:
    """Return a line for each finding of the publication: our result, and whether the finding holds."""
    lines = []
    for row in document["rows"]:
        if row["metric"] == "found in 2012":
            figure, _, found = row["case"].partition(": ")
            holds, _, here = row["note"].partition(": ")
            lines.append([figure, found, here, f"**{holds}**" if holds == "no" else holds])
    return table(["", "found in 2012", "here", "holds"], lines)


def volume_shapes(document: Document) -> str:
    """Return a line for each viewpoint and shape."""
    values = {(row["case"], row["metric"]): row for row in document["rows"]}
    lines = []
    for (case, metric), row in values.items():
        if metric != "frame rate":
            continue
        hits = values[case, "hit rate of the texture cache"]
        sectors = hits["peer"].get("sectors looked up")
        cells = [cell(row["value"]), "-" if hits["value"] is None else f"{100 * hits['value']:.1f} %"]
        cells += [cell(None if sectors is None else sectors / 1e6)]
        for scheme in ("dependent", "simple"):
            seen = values[f"{case}, {scheme}", "access frequency"]["peer"]
            share = values.get((f"{case}, {scheme}", "share of the warps' time in accesses"))
            within = f" ± {number(seen['access time, half interval'])}" if seen.get("access time, half interval") else ""
            cells += [cell(seen.get("access time, cycles")) + within, "-" if share is None else f"{100 * share['value']:.1f} %"]
        lines.append([case, *cells])
    columns = [f"`{scheme}`: {what}" for scheme in ("dependent", "simple") for what in ("access time, cycles", "of the time")]
    return table(["view, shape", "frames/s", "hit rate", "sectors looked up, millions", *columns], lines) + _volume_probes(document)


def _volume_probes(document: Document) -> str:
    """Return a sentence on the registers and resident blocks with and without probes."""
    said = {}
    for row in document["rows"]:
        scheme, peer = row["case"].rpartition(", ")[2], row["peer"]
        if "blocks, traced" in peer:
            pairs = [f"{number(peer[f'{what}, original'])} → {number(peer[f'{what}, traced'])}" for what in ("registers", "blocks")]
            said[scheme] = f"`{scheme}` {pairs[0]} and {pairs[1]}"
    return f"\nRegisters of a thread and resident blocks of an SM, without and with probes: {'; '.join(said.values())}.\n" if said else ""


def volume_correlations(document: Document) -> str:
    """Return a line for each pair: both coefficients with their intervals."""
    found: dict[str, dict[str, str]] = {}
    for row in document["rows"]:
        if row["metric"] in ("Pearson's r", "Spearman's rho"):
            peer, value = row["peer"], row["value"]
            said = "-" if value is None else f"{value:+.2f} ({peer['low']:+.2f} to {peer['high']:+.2f})"
            if "least without a shape" in peer:
                said += f"; without one shape {peer['least without a shape']:+.2f} to {peer['most without a shape']:+.2f}"
            found.setdefault(row["case"], {"remark": row["note"]})[row["metric"]] = said
    lines = [[case, one["Pearson's r"], one["Spearman's rho"], one["remark"]] for case, one in found.items()]
    return table(["over the shapes", "Pearson's r", "Spearman's rho", "remark"], lines)


def transfers(document: Document) -> str:
    """Return a line for each case of the remap kernels and transfers that has a reach or a peer."""
    lines = []
    for row in document["rows"]:
        if row["metric"] == "equal to NumPy" or (row["reach"] is None and not row["peer"]):
            continue
        peers = ", ".join(f"{name} {number(value)}" for name, value in row["peer"].items() if name not in ("p10", "p90", "over measured"))
        lines.append([row["case"], row["metric"], number(row["value"], row["unit"]), peers if len(peers) < 160 else "", verdict(row)])
    return table(["what", "", "value", "beside it", "reach"], lines)


def stencils(document: Document) -> str:
    """Return a line for each rule: its rate and share of the copy's rate; the row of its first schedule also has other tools' rates."""
    shares: dict[str, ResultRow] = {}
    lines = []
    for row in document["rows"]:
        if row["metric"] == "share of the copy":
            shares[row["case"]] = row
    told: set[str] = set()
    for row in document["rows"]:
        if row["case"] not in shares or row["metric"] != "rate":
            continue
        rule = row["case"].rpartition(", ")[0]
        others = {} if rule in told else {name.removesuffix(", Gcell/s"): value for name, value in row["peer"].items()}
        others.pop("copy", None)
        told.add(rule)
        of_case = shares[row["case"]]
        reach = next((f"{one['metric']} {verdict(one)}" for one in (row, of_case) if one["reach"] is not None), "compares")
        beside = "; ".join(f"{name} {value:,.0f}" for name, value in others.items())
        rate = f"{number(row['value'], row['unit'])}"
        lines.append((row["case"], rate, number(of_case["value"], "share"), reach, beside or "-"))
    return table(("rule and grid", "rate", "share of a copy in the same run", "reach", "beside it, Gcell/s"), lines)


def stencil_devices(document: Document) -> str:
    """Return a line for each case on several devices: each transport's fastest step, and the speed-up over one device."""
    times: dict[str, dict[str, dict[str, float]]] = {}
    """Times of each setting, by case and transport."""
    best: dict[str, float] = {}
    gained: dict[str, ResultRow] = {}
    for row in document["rows"]:
        case, metric = row["case"], row["metric"]
        if "slabs of one device" in case or row["value"] is None:
            continue
        if metric == "time of a step, best of all":
            best[case] = row["value"]
        elif metric.startswith("time of a step, best k"):
            plain = case.replace(", MPI ranks", "").partition(" by ")[0]
            found = times.setdefault(plain, {})
            for setting, us in row["peer"].items():
                name = (case.partition(" by ")[2] or "mpi") if "MPI" in case else setting.partition(",")[0]
                found.setdefault(name, {})[setting] = us
        elif metric in ("speed-up over one device", "efficiency"):
            gained[case] = row
    lines = []
    for case, row in sorted(gained.items(), key=lambda one: _of_devices(one[0])):
        count = _of_devices(case)[1]
        alone = number(best[case] * row["value"])  # at the same time, with the same kernels
        cells = [_fastest_of(times[case].get(name, {})) for name in _TRANSPORTS]
        what = "efficiency" if row["metric"] == "efficiency" else "speed-up"
        lines.append([case.rpartition(", ")[0], number(count), alone, *cells, f"{what} {row['value']:.2f}", verdict(row)])
    return table(["us a step, best k of 1 to 8", "devices", "one device", *(f"`{name}`" for name in _TRANSPORTS), "", "reach"], lines)


def _fastest_of(times: Mapping[str, float]) -> str:
    """Return the fastest time; if one setting alone was measured, with its steps between exchanges."""
    only = f" (only k{next(iter(times)).partition('k')[2]})" if len(times) == 1 else ""
    return number(min(times.values())) + only if times else "-"


_TRANSPORTS = ("peer", "flags", "persistent", "host", "mpi", "nccl")


_STENCILS = ("7-point 256^3", "Himeno M", "7-point 512^3", "Himeno L", "7-point 512^3 a device")


def _of_devices(case: str) -> tuple[int, int]:
    """Return the place of a stencil's case among all, and its number of devices."""
    name, _, devices = case.rpartition(", ")
    return _STENCILS.index(name), int(devices.split()[0])


def stencil_exchanges(document: Document) -> str:
    """Return by transport the time that an exchange adds to a step of very few planes, and the time of its copies alone."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in document["rows"]:
        if row["case"].startswith("exchange of faces") and row["value"] is not None:
            _, devices, size, transport = row["case"].split(", ")
            kind = "in a step" if row["metric"].startswith("step of") else "alone"
            found.setdefault((devices.split()[0], transport), {})[f"{size} {kind}"] = row["value"]
    sizes = ("64 KiB", "256 KiB", "1024 KiB")
    columns = [f"{size} {kind}" for size in sizes for kind in ("alone", "in a step")]
    lines = [
        [count, f"`{name}`", *(number(values[one]) if one in values else "-" for one in columns)]
        for (count, name), values in sorted(found.items(), key=lambda one: one[0][0])
    ]
    return table(["devices", "us an exchange", *columns], lines)


def stencil_calls(document: Document) -> str:
    """Return the time of a step in calls of `steps` of different lengths, by the number of devices."""
    rows = [row for row in document["rows"] if row["case"].startswith("calls of steps, ") and row["value"] is not None]
    steps = dict.fromkeys(name for row in rows for name in row["peer"])
    lines = [[row["case"].rpartition(", ")[2].split()[0], row["note"], *(number(row["peer"][one]) for one in steps)] for row in rows]
    return table(["devices", "setting", *(f"{one}, us each" for one in steps)], lines)


def stencil_model(document: Document) -> str:
    """Return for each case and transport the model's error, and how much slower its choice of k and overlap is than the best."""
    found: dict[tuple[int, int, str], dict[str, ResultRow]] = {}
    for row in document["rows"]:
        case, _, transport = row["case"].rpartition(", ")
        plain = case.partition(" by ")[0]
        if plain.endswith((", 1 device", "slabs of one device")):
            continue
        if "over measured" not in row["metric"] and "chosen by the model" not in row["metric"]:
            continue
        if plain.rpartition(", ")[0] in _STENCILS:
            found.setdefault((*_of_devices(plain), transport), {})[row["metric"]] = row
    lines = []
    for (at, count, transport), rows in sorted(found.items()):
        average, worst = (rows[f"predicted over measured, less 1, {which}"]["value"] for which in ("average", "worst"))
        chosen = rows["k and overlap chosen by the model over the best"]
        lost = "not measured" if chosen["value"] is None else f"{100 * (chosen['value'] - 1):.0f} %"
        cells = [f"{100 * average:.0f} %", f"{100 * worst:.0f} %", lost, "-" if chosen["value"] is None else verdict(chosen)]
        lines.append([_STENCILS[at], number(count), f"`{transport}`", *cells])
    return table(["", "devices", "transport", "off on average", "at most", "what it chooses loses", "reach"], lines)


def stencil_figures(document: Document) -> dict[str, Figure]:
    """Return the speed-up of several devices over one, each with its best setting."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in document["rows"]:
        if row["metric"] == "speed-up over one device" and row["value"] is not None:
            name, count = row["case"].rpartition(", ")[0], _of_devices(row["case"])[1]
            series.setdefault(name, [(1.0, 1.0)]).append((float(count), row["value"]))
    most = max(int(points[-1][0]) for points in map(sorted, series.values()))
    counts = [float(1 << at) for at in range(most.bit_length())]
    shown = {name: sorted(series[name]) for name in _STENCILS if name in series} | {"as many times": [(one, one) for one in counts]}
    return {"strong": Lines("Strong scaling", "GPUs", "times as fast as one", shown, doubling=True)}


def stencil_scaling(document: Document) -> str:
    """Return a line for each number of devices of the published machine, each model beside the other."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in document["rows"]:
        if row["metric"] == "time of a step, best k, predicted":
            rule, _, devices = row["case"].partition(" of ")[0].rpartition(", ")
            peer, bound = row["peer"], row["note"].removeprefix("k = 1 is bound by ")
            found.setdefault((rule, devices), []).extend(
                [number(peer["k = 1 us"]), f"{number(row['value'])} (k = {peer['k']:.0f})", f"{peer['gain %']:.1f} %", bound]
            )
    models = ("`kawamura`", "`memlane`")
    columns = [f"{model}: {what}" for model in models for what in ("k = 1, us", "best, us", "gain", "bound by")]
    return table(["rule", "devices", *columns], [[*case, *cells] for case, cells in found.items()])


def stencil_claims(is_predicted: bool) -> Callable[[Document], str]:
    """Return a line for each finding of the publication, next to the models' result for its machine, or the result of these devices."""

    def shown(document: Document) -> str:
        lines = []
        for row in document["rows"]:
            if row["metric"] == "found in 2012":
                figure, _, said = row["case"].partition(": ")
                found, _, by = said.rpartition("; ")
                holds, _, here = row["note"].partition(": ")
                if by.startswith("model ") == is_predicted:
                    by = by.removeprefix("modelled, ").removeprefix("measured, ").removesuffix(", published machine")
                    lines.append([figure, found, by, here, f"**{holds}**" if holds == "no" else holds])
        return table(["", "found in 2012", "by", "here", "holds"], lines)

    return shown


def stencil_overlap(document: Document) -> str:
    """Return two lines for each number of devices: times by steps between exchanges, with exchanges overlapped and after all planes."""
    lines = []
    for row in document["rows"]:
        if row["metric"] == "time of a step, best k, modelled" and ", 1 device" not in row["case"]:
            for words, behind in (("overlapped", ""), ("behind all planes", ", not overlapped")):
                times = [row["peer"].get(f"k = {k} us{behind}") for k in range(1, 9)]
                fastest = min(one for name, one in row["peer"].items() if name != "k")
                cells = ["-" if us is None else f"**{us:.1f}**" if us == fastest else f"{us:.1f}" for us in times]
                lines.append([row["case"].removesuffix(", host"), words, *cells])
    return table(["us a step", "exchange", *(f"k = {k}" for k in range(1, 9))], lines)


def stencil_lab(document: Document) -> str:
    """Return a line for each case and transport on two GPUs: steps by the fastest settings, and how far both models are off."""
    cases: dict[str, dict[str, ResultRow]] = {}
    for row in document["rows"]:
        if row["case"].count(", ") == 3 and not row["metric"].startswith("found"):
            cases.setdefault(row["case"], {})[row["metric"].removesuffix(", measured")] = row
    lines = []
    for case, rows in cases.items():
        step = rows["time of a step, best k"]
        times = {name.removeprefix("k = "): us for name, us in step["peer"].items() if name != "k"}
        overlapped = {name.removesuffix(" us"): us for name, us in times.items() if name.endswith(" us")}
        single = overlapped | {name.partition(" us")[0]: us for name, us in times.items() if name.endswith("one step a launch")}
        behind = {name.split()[0]: us for name, us in times.items() if name.endswith("not overlapped")}
        off = (rows[f"error of model {model}, average"] for model in ("memlane", "kawamura"))
        lines.append(
            [
                case.rpartition(", ")[0].removesuffix(", 2 devices"),
                f"`{case.rpartition(', ')[2]}`",
                number(overlapped["1"]),
                *map(_with_k, (single, overlapped, behind)),
                f"{rows['speed-up over one device']['value']:.2f}",
                *(f"{100 * one['value']:.0f} % ({100 * one['peer']['worst']:.0f} %)" for one in off),
            ]
        )
    settings = ("k = 1", "one step a launch", "several", "not overlapped")
    return table(["us a step", "transport", *settings, "over one GPU", "`memlane` is off", "`kawamura` is off"], lines)


def _with_k(times: Mapping[str, float]) -> str:
    """Return the fastest of some times by steps between exchanges, with these steps."""
    best = min(times, key=lambda k: times[k])
    return f"{number(times[best])} (k = {best})"


def remaps(document: Document) -> str:
    """Return a line for each case of the lab: the kernel's gain and the transfer's loss."""
    cases: dict[str, dict[str, str]] = {}
    for row in document["rows"]:
        metric = row["metric"].partition(",")[0] if row["metric"].startswith("speed-up of the whole") else row["metric"]
        cases.setdefault(row["case"], {})[metric] = number(row["value"], row["unit"]) if row["value"] is not None else "never"
    metrics = {
        "kernel, times": "speed-up of the kernel",
        "transfer, behind": "overhead of the transfer, behind the copy",
        "transfer, overlapped": "overhead of the transfer, overlapped",
        "whole, times": "speed-up of the whole",
        "pays after": "runs after which it pays",
    }
    return table(["case", *metrics], [[case, *(found.get(one, "-") for one in metrics.values())] for case, found in cases.items()])
