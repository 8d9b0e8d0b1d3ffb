"""A kernel as text for people: the identity it rests on, its proof, its program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stages.kernels.lut import GROUP, additions
from stages.kernels.operand_storage import WeightCode
from stages.kernels.signature import KernelSignature
from stages.kernels.terms import Term, TermPlan, plane_bits
from stages.kernels.winograd_transforms import WINDOW
from stages.kinds import Table
from stages.synthesizing.body import Body
from stages.synthesizing.interaction import residual
from stages.synthesizing.vector_program import Program, Register


def explanation(signature: KernelSignature) -> list[str]:
    """What a kernel of any family adds up, and why that is the product."""
    if signature.plan is not None:
        return derivation(signature.plan)
    if (lut := signature.lut) is not None:
        added = additions(lut.activation_bits, lut.is_balanced)
        return [
            f"a * w = what a table of {1 << GROUP} entries says of {GROUP} channels' activations, "
            f"looked up by {GROUP} bits of their weights",
            f"digits of a weight count {list(lut.coefficients)}, the lowest first",
            f"a channel adds, per level of a, {[int(x) for x in added[1]]} where its bit is set",
            f"  and {[int(x) for x in added[0]]} elsewhere",
            f"v = {[int(x) for x in lut.residual()]} per stored w is part of the bias",
        ]
    products = signature.products
    assert products is not None
    if signature.is_tiled:
        what = f"{signature.channels_per_word} channels"
        return [
            f"a * w by products of {products.element} matrices, {signature.step} words of {what} a "
            "step:",
            "a row of the one is a pixel, a row of the other a word of 16 output channels",
            *_stored(signature.code),
        ]
    if signature.is_float:
        order = "added up in the order of the window's channels"
        if signature.flush_period:
            order = (
                f"added up in {products.bits} bits, at most {signature.flush_period} a sum, "
                "and these sums in float32"
            )
        return [
            f"a * w by multiplication of {products.element}, {products.group} a lane and step, "
            f"{order}"
        ]
    if signature.is_transformed:
        return [
            f"a * w by multiplication of transformed pixels and weights of {products.element}, "
            f"{products.group} a lane and step, added up modulo 2^32, which sums of windows of "
            f"{WINDOW}x{WINDOW} pixels are made of (Winograd)"
        ]
    if signature.pixels > 1:
        return [
            f"a * w by products of matrices of bytes, {signature.pixels} pixels by as many output "
            f"channels an instruction, {products.group} neighbouring channels a step",
            f"for a of {products.activation_bits} bits and w of at most {products.weight_limit}",
            *_less(signature.offset),
        ]
    what = "widened bytes" if signature.is_widened else "bytes"
    return [
        f"a * w by multiplication of {what}, {products.group} neighbouring channels a step, "
        f"added up in lanes of {products.bits} bits",
        f"for a of {products.activation_bits} bits and w of at most {products.weight_limit}",
        *_less(signature.offset),
        *_stored(signature.code),
    ]


def _less(offset: int) -> list[str]:
    """What is multiplied instead of levels, where an instruction takes signed bytes."""
    if not offset:
        return []
    return [f"multiplied is a - {offset}, a signed byte; the bias has {offset} times the sum of w"]


def _stored(code: WeightCode | None) -> list[str]:
    """What is stored of weights, where these become bytes on the way."""
    if code is None:
        return []
    what = "(w - 1) / 2" if code.is_odd else "w"
    size = f"{code.bits} bit{'s' * (code.bits > 1)}"
    return [f"stored is {what} in {size}; one instruction makes bytes of 64 weights"]


def derivation(plan: TermPlan) -> list[str]:
    """What the plan counts, why that is the product, and what is left to others."""
    levels = f"a in 0..{(1 << plan.activation_bits) - 1}, w {_range(plan)}"
    lines = [f"a * w = {_scaled(plan)}", f"for {levels}, where"]
    lines += [f"  {line}" for line in _planes("A", plan.activation_planes, plan.activation_bits)]
    lines += [f"  {line}" for line in _planes("W", plan.weight_planes, plan.weight_bits)]
    if plan.activation_sum:
        sums = list(plan.activation_sum)
        lines.append(f"  u = {sums} per level of a, summed per pixel when it is packed")
    lines.append(f"  v = {[int(x) for x in residual(plan)]} per stored w, part of the bias")
    lines.append("terms and u, then v, for all pairs, one stored w a column:")
    return lines + [f"  {line}" for line in _table(plan)]


def _scaled(plan: TermPlan) -> str:
    terms = " ".join(f"{'-' if t.coefficient < 0 else '+'} {_term(t)}" for t in plan.terms)
    total = terms.removeprefix("+ ") + (" + u[a]" if plan.activation_sum else "")
    if len(plan.terms) == 1 and total.startswith("("):
        total = total[1:-1]
    return {1: f"{total} + v[w]", -1: f"-({total}) + v[w]"}.get(
        plan.scale, f"{plan.scale} * ({total}) + v[w]"
    )


def _term(term: Term) -> str:
    a = [f"A{i}" for i in term.activations]
    w = [f"W{i}" for i in term.weights]
    size = abs(term.coefficient)
    factor = f"{size} " if size != 1 else ""
    inside = {
        "and": lambda: f"{a[0]} & {w[0]}",
        "xor": lambda: f"{a[0]} ^ {w[0]}",
        "choose_a": lambda: f"{w[0]} ? {a[0]} : {a[1]}",
        "choose_w": lambda: f"{a[0]} ? {w[0]} : {w[1]}",
    }[term.op]()
    return f"{factor}({inside})"


def _range(plan: TermPlan) -> str:
    top = (1 << plan.weight_bits) - 1
    return {
        "unipolar": f"in 0..{top}",
        "bipolar": f"in -{top}..{top}, odd",
        "signed": f"in -{(top + 1) // 2}..{top // 2}",
    }[plan.weights]


def _planes(letter: str, tables: Sequence[int], bits: int) -> Iterator[str]:
    what = "levels" if letter == "A" else "stored w"
    for index, table in enumerate(tables):
        levels = [str(level) for level, bit in enumerate(plane_bits(table, 1 << bits)) if bit]
        yield f"{letter}{index} is set for {what} {', '.join(levels)}"


def _table(plan: TermPlan) -> Iterator[str]:
    sums, v = plan.scale * plan.table(), residual(plan)
    for a in range(1 << plan.activation_bits):
        cells = [f"{int(s)}{int(c):+d}={int(s + c)}" for s, c in zip(sums[a], v, strict=True)]
        yield f"a={a}: {'  '.join(f'{cell:>9s}' for cell in cells)}"


def passes(signature: KernelSignature, body: Body) -> list[str]:
    """The programs of a kernel whose counters are carried from word to word."""
    lines = []
    for one in body.passes:
        title = f"pass over the window, coefficient {one.coefficient}"
        if one.carried:
            title += f"; counters of the pass before times {one.carried}"
        step = "word" if signature.step == 1 else f"{signature.step} words"
        lines += [f"{title}; for every {step}:", *_indented(program_text(one.word))]
        if one.ends_chain:
            when = f", at the latest after {signature.flush_period} words" * bool(
                signature.flush_period
            )
            lines += [f"flushing a counter{when}:", *_indented(program_text(body.flush))]
            sums = ", ".join(body.flush.outputs)
            lines.append(f"    sums += {one.coefficient} * ({sums})")
    return lines


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def program_text(program: Program) -> list[str]:
    """One line a step: result, mnemonic, operands; halves of a register as `.l` and `.h`."""
    names: dict[int, str] = {}
    for name, register in program.inputs.items():
        _name(names, register, name)
    lines = []
    for number, step in enumerate(program.steps):
        _name(names, step.result, f"v{number}")
        operands = [_shown(names, register) for register in step.operands]
        if step.immediate is not None:
            operands.append(f"#{step.immediate}")
        lines.append(f"{f'v{number}':6s} = {step.instruction.name:20s} {', '.join(operands)}")
    results = [f"{name} = {_shown(names, register)}" for name, register in program.outputs.items()]
    width = 6
    rows = [results[i : i + width] for i in range(0, len(results), width)]
    return lines + [f"-> {', '.join(row)}" for row in rows]


def _name(names: dict[int, str], register: Register, name: str) -> None:
    if len(register) == 1:
        names[register[0]] = name
    else:
        names.update({part: f"{name}.{'lh'[i]}" for i, part in enumerate(register)})


def _shown(names: Mapping[int, str], register: Register) -> str:
    parts = [names[part] for part in register]
    if len(parts) == 2:
        low, high = (part.rsplit(".", 1) for part in parts)
        if low[0] == high[0] and (low[-1], high[-1]) == ("l", "h"):
            return low[0]
        return f"{{{parts[0]}, {parts[1]}}}"
    return parts[0]


def proof_text(facts: Table) -> list[str]:
    """What a certificate says was proved."""
    return [f"{name.replace('_', ' ')}: {value}" for name, value in facts.items()]
