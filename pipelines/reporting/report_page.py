"""The page of a report: one HTML file with its style and figures in it, and no script."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from pipelines.output import printed_tables
from pipelines.recipe.resolved import Resolved
from pipelines.reporting import drawings, recipe_comparison, report_sections
from pipelines.reporting.page_parts import table
from pipelines.reporting.recipe_comparison import Entry
from pipelines.reporting.report_facts import Facts
from pipelines.reporting.style import BY, STYLE, colours, legend

_NAMES = {"how": "algorithm", "precision": "precision", "heat": "time"}


def page(resolved: Resolved, manifest: Mapping[str, Any], facts: Facts, origin: str) -> str:
    """Return the whole page; `manifest` is the package's, `origin` one line of where and when."""
    parts = [
        f"<h1>{escape(resolved.name)}</h1>",
        f'<p class="said">{escape(resolved.recipe.description)}<br>{escape(origin)}</p>',
        _cards(manifest, facts, resolved.hardware.threads),
        *_network(facts),
        *report_sections.beside_float(facts, _library(manifest)),
        *report_sections.accuracy(facts.rated),
        *report_sections.errors(facts.errors),
        *report_sections.costs(facts.rated),
        "<h2>The arena over time</h2>",
        '<p class="said">Every box is a tensor: from left to right the calls during which it is '
        "kept, from bottom to top the bytes of the arena that it has.</p>",
        f'<div class="figure">{drawings.arena(facts)}</div>',
        *_measured(facts),
        "<h2>Exactness, stage by stage</h2>",
        exactness(facts),
        *_kernels(facts),
        *_proofs(manifest),
        *_provenance(resolved, manifest),
    ]
    style = STYLE + "".join(colours(facts.layers))
    return html(resolved.name, style, parts)


def comparison(entries: Sequence[Entry]) -> str:
    """Return the page that puts several recipes beside each other."""
    best = recipe_comparison.pareto_front(entries)
    by_rate = recipe_comparison.has_rates(entries)
    rows = [
        [
            entry.name,
            entry.hardware,
            f"{entry.facts.macs / 1e6:,.0f}",
            f"{entry.megacycles:,.2f}",
            printed_tables.size(entry.facts.weights),
            printed_tables.size(entry.facts.arena.size(1)),
            "" if entry.library is None else printed_tables.size(entry.library),
            "" if entry.rate is None else f"{entry.rate:.2%}",
            _verdict(entry.facts),
            "yes" if entry in best else "",
        ]
        for entry in entries
    ]
    titles = ["recipe", "hardware", "MMAC", "M cycles predicted", "weights", "memory, 1 thread",
              "library", "right answers", "beside the source", "on the front"]  # fmt: skip
    upwards = "gives more right answers" if by_rate else "takes less memory"
    why = "" if by_rate else " Accuracy is not known of all of them."
    names = ", ".join(entry.name for entry in entries)
    parts = [
        "<h1>Recipes beside each other</h1>",
        '<p class="said">The line joins the recipes that no other one beats: none is as fast and '
        f"{upwards}. Time is predicted, on one thread, of the layers with a choice of kernels "
        f"alone.{why}</p>",
        f'<div class="figure">{recipe_comparison.figure(entries)}</div>',
        table(titles, rows, {2, 3, 4, 5, 6, 7}),
    ]
    return html(names, STYLE, parts)


def html(title: str, style: str, parts: Sequence[str]) -> str:
    """Return a whole page of a title, a style and what stands on it."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _verdict(facts: Facts) -> str:
    """The worst verdict of all stages."""
    verdicts = {row["verdict"] for row in facts.exactness}
    return next((v for v in ("departs", "close", "exact") if v in verdicts), "not compared")


def _library(manifest: Mapping[str, Any]) -> int | None:
    """Bytes of the shared library, if the package has one."""
    return next((f["bytes"] for n, f in manifest["files"].items() if n.endswith(".so")), None)


def _cards(manifest: Mapping[str, Any], facts: Facts, threads: int) -> str:
    library = _library(manifest)
    chosen, calls = sum(x.cycles is not None for x in facts.layers), len(facts.layers)
    cards = [
        (drawings.short(facts.macs), "multiply-accumulates"),
        (drawings.short(facts.cycles), f"cycles predicted, of {chosen} of {calls} calls"),
        (
            printed_tables.size(facts.weights),
            f"weights; {printed_tables.size(facts.float_weights)} in float32",
        ),
        (printed_tables.size(facts.arena.size(1)), "memory beside them, 1 thread"),
    ]
    if threads > 1:
        cards.append((printed_tables.size(facts.arena.size(threads)), f"on {threads} threads"))
    if library is not None:
        cards.append((printed_tables.size(library), "shared library"))
    cards.append((_verdict(facts), "beside the source graph"))
    return (
        '<div class="cards">'
        + "".join(f'<div class="card"><b>{escape(a)}</b><span>{escape(b)}</span></div>'
                  for a, b in cards)
        + "</div>"
    )  # fmt: skip


def _network(facts: Facts) -> Iterable[str]:
    is_measured = any(layer.seconds is not None for layer in facts.layers)
    said = (
        "Times are measured, on one thread and alone." if is_measured else _what_is_predicted(facts)
    )
    yield "<h2>The network</h2>"
    yield (
        f'<p class="said">A row a call, in order; lines lead to what it reads. {said}</p>'
        "Colours by "
    )
    for number, by in enumerate(BY):
        checked = " checked" if number == 0 else ""
        yield (
            f'<input type="radio" name="by" id="by-{by}"{checked}>'
            f'<label class="pick" for="by-{by}">{_NAMES[by]}</label>'
        )
    for by in BY:
        entries = "".join(
            f'<span><i style="background:{colour}"></i>{escape(text)}</span>'
            for text, colour in legend(by, facts.layers)
        )
        yield f'<div class="legend legend-{by}">{entries}</div>'
    yield f'<div class="figure">{drawings.network(facts)}</div>'


def _what_is_predicted(facts: Facts) -> str:
    """Which calls the predicted cycles are of, and what share of the products these compute."""
    chosen = [layer for layer in facts.layers if layer.cycles is not None]
    others = len(facts.layers) - len(chosen)
    macs = sum(layer.macs for layer in facts.layers)
    share = f", {sum(layer.macs for layer in chosen) / macs:.1%} of all products" if macs else ""
    return (
        "Times are predicted by the cost tables, and only for calls with a choice of kernels: "
        f"{len(chosen)} of {len(facts.layers)}{share}."
        + (f" The other {others} have no prediction and are in no sum." if others else "")
    )


def _measured(facts: Facts) -> Iterable[str]:
    """Percentiles of `doit bench board=`, or medians of `doit bench`, if a file was given."""
    boards = facts.bench.get("boards") or [facts.bench]
    rows = []
    for board in boards:
        for part in board.get("threads", []) if isinstance(board, Mapping) else []:
            for name, found in dict(part.get("percentiles", {})).items():
                times = [f"{1e3 * float(found[p]):.3f}" for p in ("50", "90", "99")]
                rows.append([part["threads"], name, *times])
            for row in part.get("rows", []):
                rows.append([part["threads"], row["what"], f"{row['median_ms']:.3f}", "", ""])
    if rows:
        yield "<h2>Measured</h2>"
        yield f'<p class="said">{escape(str(facts.bench.get("command", "")))}</p>'
        yield table(["threads", "what", "p50 ms", "p90 ms", "p99 ms"], rows, {0, 2, 3, 4})


def _kernels(facts: Facts) -> Iterable[str]:
    total = sum(drawings.time_of(layer) for layer in facts.layers) or 1.0
    chosen = [layer for layer in facts.layers if layer.kernel]
    others = [other.kernel for layer in chosen for other in layer.alternatives]
    suffix = _common_end([*(layer.kernel for layer in chosen), *others])
    rows = []
    for layer in chosen:
        time = drawings.time_of(layer)
        alternatives = "; ".join(
            f"{other.kernel.removesuffix(suffix)} {other.predicted:.2f}"
            + (f" ({other.measured:.2f} measured)" if other.measured is not None else "")
            for other in layer.alternatives
        )
        rows.append(
            [
                layer.name,
                layer.precision,
                f"{layer.macs / 1e6:,.2f}",
                "" if layer.cycles is None else f"{layer.cycles / 1e3:,.1f}",
                "" if layer.seconds is None else f"{1e6 * layer.seconds:,.1f}",
                f"{time / total:.1%}" if time else "",
                "" if layer.peak_share is None else f"{layer.peak_share:.0%}",
                f"{layer.kernel.removesuffix(suffix)} {layer.order}",
                alternatives,
            ]
        )
    yield "<h2>Kernels, and beside what they were chosen</h2>"
    ending = f" All names end in <code>{escape(suffix)}</code>." if suffix else ""
    yield (
        '<p class="said">Behind each kernel stand the next cheapest ones, with their predicted '
        "time as a multiple of its own, and the time beside the predicted best that "
        f"<code>doit tune</code> measured, where it did.{ending}</p>"
    )
    titles = ["layer", "bits", "MMAC", "kcycles", "us", "share", "of peak", "runs", "instead of"]
    used = [n for n in range(len(titles)) if any(row[n] for row in rows)]
    picked = [[row[n] for n in used] for row in rows]
    numbers = {at for at, n in enumerate(used) if 2 <= n <= 6}
    yield table([titles[n] for n in used], picked, numbers, {len(used) - 2, len(used) - 1})


def _common_end(names: Sequence[str]) -> str:
    """What all names end in, from an underscore on."""
    behind = zip(*(reversed(name) for name in names), strict=False)
    same = itertools.takewhile(lambda letters: len(set(letters)) == 1, behind)
    end = "".join(letters[0] for letters in same)[::-1]
    return end[end.index("_") :] if "_" in end else ""


def _proofs(manifest: Mapping[str, Any]) -> Iterable[str]:
    rows = [
        [name, ", ".join(f"{k} {v}" for k, v in body.get("proved", {}).items()),
         str(body.get("text", ""))[:12]]
        for name, body in manifest["provenance"]["kernels"].items()
    ]  # fmt: skip
    yield "<h2>What is proved</h2>"
    yield (
        '<p class="said">Each kernel is proved for all inputs within these limits; the digits are '
        "the beginning of a SHA-256 of the function that was proved.</p>"
    )
    yield table(["kernel", "for", "function"], rows, set(), {0, 2})


def _provenance(resolved: Resolved, manifest: Mapping[str, Any]) -> Iterable[str]:
    fields = [
        [field, str(value), resolved.origins.get(field, "default")]
        for field, value in resolved.values().items()
    ]
    files = [[n, f"{f['bytes']:,}", f["sha256"]] for n, f in manifest["files"].items()]
    tools = [[name, version] for name, version in manifest["provenance"]["tools"].items()]
    yield "<h2>Where it comes from</h2>"
    yield table(["tool", "version"], tools, set())
    for title, head, rows, numbers, code in (
        ("the recipe", ["field", "value", "from"], fields, set(), {1}),
        ("the package's files", ["file", "bytes", "SHA-256"], files, {1}, {2}),
    ):
        yield f"<details><summary>{title}</summary>{table(head, rows, numbers, code)}</details>"


def exactness(facts: Facts) -> str:
    """The table of verdicts after every stage."""
    rows = [[row["stage"], row["verdict"], row["detail"]] for row in facts.exactness]
    return table(["stage", "verdict", ""], rows, set())
