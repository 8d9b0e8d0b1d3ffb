"""What was emulated as plain data, and as the tables that commands and the page show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipelines.emulating.block_costs import Cost, total
from pipelines.emulating.layer_kinds import OTHER, RUNTIME, LayerOfKind, of
from pipelines.emulating.multiply_instructions import named
from pipelines.output import printed_tables

if TYPE_CHECKING:
    from pipelines.emulating.emulated_comparison import Compared, EmulatedCost

INSTRUCTIONS, CYCLES = "instructions_emulated", "cycles_modelled"
IN_L1 = "cycles_modelled_in_l1"
PRODUCTS = "products_emulated"
"""How often instructions that multiply were executed, by name."""
NAMES: Mapping[str, str] = {
    INSTRUCTIONS: "M instructions (emulated)",
    CYCLES: "M cycles (modelled)",
    IN_L1: "all in L1 (modelled)",
}
"""Figures → what they are called in tables."""
MULTIPLIES = "multiplies by (emulated)"
TAKES = {INSTRUCTIONS: "package executes", CYCLES: "package takes"}


def data(compared: Compared) -> dict[str, Any]:
    """Return rows of sides, kinds of layers and layers."""
    package, *others = compared.sides
    rows = [{"what": package.what, **package.cost.to_plain(), **_products(package)}]
    for side in others:
        rows.append(
            {
                "what": side.what,
                **side.cost.to_plain(),
                **_ratios(package.cost, side.cost),
                "difference": side.difference,
                **_products(side),
            }
        )
    layers = list(_layers(compared))
    return {
        "macs": sum(layer.macs for layer in compared.layers),
        "rows": rows,
        "kinds": list(_kinds(compared, layers)),
        "layers": layers,
        "refused": compared.refused,
        "notes": compared.notes,
    }


def _products(side: EmulatedCost) -> dict[str, Any]:
    return {PRODUCTS: dict(side.products)} if side.products else {}


def _ratios(package: Cost, other: Cost) -> dict[str, float]:
    found = {f"ratio_{INSTRUCTIONS}": package.instructions / other.instructions}
    if package.cycles is not None and other.cycles:
        found[f"ratio_{CYCLES}"] = package.cycles / other.cycles
    return found


def _layers(compared: Compared) -> Iterator[dict[str, Any]]:
    """Yield the package's layers, then what others have besides: they merge other layers."""
    known: dict[str, LayerOfKind] = {}
    for layer in compared.layers:
        name = of(layer.name)
        macs = layer.macs + (known[name].macs if name in known else 0)
        known[name] = LayerOfKind(name, layer.kind, macs)
    known[RUNTIME] = LayerOfKind(RUNTIME, RUNTIME)
    with_layers = [side for side in compared.sides if side.layers]
    for side in with_layers:
        known |= {name: LayerOfKind(name, OTHER) for name in side.layers if name not in known}
    for layer in known.values():
        costs = {
            side.what: side.layers[layer.name].to_plain()
            for side in with_layers
            if layer.name in side.layers
        }
        yield {"layer": layer.name, "kind": layer.kind, "macs": layer.macs, "sides": costs}


def _kinds(compared: Compared, layers: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    kinds = {row["layer"]: row["kind"] for row in layers}
    for kind in dict.fromkeys(kinds.values()):
        own = [row for row in layers if row["kind"] == kind]
        sides = {
            side.what: _of_kind(side, kinds, kind).to_plain()
            for side in compared.sides
            if any(kinds[name] == kind for name in side.layers)
        }
        macs = sum(row["macs"] for row in own)
        yield {"kind": kind, "layers": len(own), "macs": macs, "sides": sides}


def _of_kind(side: EmulatedCost, kinds: Mapping[str, str], kind: str) -> Cost:
    return total(cost for name, cost in side.layers.items() if kinds[name] == kind)


# -- tables -------------------------------------------------------------------------------------


def sides_table(result: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return a row a side: what it takes, and the package as a part of it."""
    shown = [name for name in NAMES if any(name in row for row in result["rows"])]
    tells_products = any(PRODUCTS in row for row in result["rows"])
    return [
        {
            "what": row["what"],
            **{NAMES[name]: _millions(row.get(name)) for name in shown},
            **{
                f"{said} ({NAMES[name].partition('(')[2]}": _part(row.get(f"ratio_{name}"))
                for name, said in TAKES.items()
                if name in shown
            },
            **({MULTIPLIES: named(row.get(PRODUCTS, {}))} if tells_products else {}),
            "output differs by": _figure(row.get("difference")),
        }
        for row in result["rows"]
    ]


def parts_table(
    rows: Sequence[Mapping[str, Any]], name: str, sides: Sequence[str], figure: str
) -> list[dict[str, str]]:
    """Return a row a layer or kind, `name`, and a column a side, of one figure in millions.

    Behind each side stands the figure a multiply-accumulate, where there are any.
    """
    table = []
    for row in rows:
        line = {name: row[name], "MMAC": f"{row['macs'] / 1e6:.2f}" if row["macs"] else ""}
        for side in sides:
            value, short = row["sides"].get(side, {}).get(figure), side.partition(",")[0]
            line[short] = _millions(value, 3)
            is_product = value is not None and row["macs"]
            line[f"{short}, a MAC"] = f"{value / row['macs']:.3f}" if is_product else ""
        if len(sides) > 1:
            first, second = (row["sides"].get(side, {}).get(figure) for side in sides[:2])
            line[TAKES[figure]] = _part(first / second) if first is not None and second else ""
        table.append(line)
    return table


def sides_with_layers(result: Mapping[str, Any]) -> list[str]:
    """Return the sides that are told apart by layer, the package first."""
    return list(dict.fromkeys(side for row in result["layers"] for side in row["sides"]))


def figures(result: Mapping[str, Any]) -> list[str]:
    """Return the figures that a result has of its layers: instructions, and cycles if modelled."""
    return [name for name in TAKES if name in result["rows"][0]]


def tell(result: Mapping[str, Any], title: str, layers: Sequence[str] | None = None) -> None:
    """Print the sides and kinds of layers; or, where layers are asked for, those."""
    if layers is None:
        table = sides_table(result)
        printed_tables.show(title, table, list(table[0]))
    for figure in figures(result):
        rows, name = result["kinds"], "kind"
        if layers is not None:
            rows, name = [row for row in result["layers"] if row["layer"] in layers], "layer"
        table = parts_table(rows, name, sides_with_layers(result), figure)
        printed_tables.show(f"{title}: {NAMES[figure]}", table, list(table[0]))
    for item in result["refused"]:
        print(f"not emulated: {item['what']}: {item['why']}")
    for note in result["notes"]:
        print(note)


def section(result: Mapping[str, Any]) -> str:
    """Return the tables of a result for a page, in Markdown."""
    parts = [_markdown(sides_table(result))]
    for figure in figures(result):
        table = parts_table(result["kinds"], "kind", sides_with_layers(result), figure)
        parts.append(f"By kind of layer, {NAMES[figure]}:\n\n{_markdown(table)}")
    parts += [f"Not emulated: {each['what']}: {each['why']}.\n" for each in result["refused"]]
    return "\n".join(parts)


def _markdown(rows: Sequence[Mapping[str, str]]) -> str:
    heads = list(rows[0])
    lines = [heads, ["---"] * len(heads), *([row[head] for head in heads] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _millions(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value / 1e6:.{digits}f}"


def _part(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f} of it"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
