"""A kernel of matrix tiles (AMX), in parts, between which a composite may do something else.

Each part is a function of its own; a step is a turn of the loop over a window's row `ky`:

* `name_beginM()` clears the sums of the M-th register of pixels, `name_fromM(begin)` has them
  begin with the bias, integers [channels];
* `name_productN(data, weights, later, ky, step, kh, …)` is the N-th product of a step;
* `name_endM(sums)` stores the sums;
* `name_awake()` stands in every step in which nothing else is done (`FLOAT_ADD`).

Weights that are stored in fewer bits are expanded to bytes in memory before registers load them:
into a ring of `RING_BYTES`, to which `later` points then. `name_ready`, of the parameters of a
product, expands those of the first steps, and the products of a step those of a step to come. Where
nothing is expanded, `later` points to the weights to prefetch.
"""

from __future__ import annotations

from hw.isa import Isa, tile_registers
from hw.isa.gfni import REGISTER
from stages.kernels.kernel_candidates import LINE
from stages.kernels.llvm import L1_CACHE, L2_CACHE, FunctionText
from stages.kernels.operand_storage import WORD_BYTES
from stages.kernels.signature import BLOCK, RING, RING_BYTES, KernelSignature
from stages.synthesizing.bias_preload import PRELOAD
from stages.synthesizing.body import Body
from stages.synthesizing.operands import row_start
from stages.synthesizing.tile_body import shape_of
from stages.synthesizing.weight_expansion import load_expanded

FLOAT_ADD = 'call float asm sideeffect "vaddss $1, $1, $0", "=x,x"(float 0.0)'
"""A sum of floats that nobody reads. On a Xeon, kernels that store tiles and leave the unit of
float products idle took 1.25 of the time where weights come from the L2 cache, in plain C as
well; one such instruction every 64 cycles, of any width, ends that."""
PREFETCH_BYTES = 4096
"""How far weights are prefetched ahead of those that are read, where each is read once: of 2 to
6 KiB these took the least time, 0.75 of that without."""
EXPAND_STEPS = 2
"""How many steps ahead weights are expanded: a load of what was just stored would have to wait."""


class TileKernel:
    """Emits a signature; the interface is that of `stages.synthesizing.microkernel`."""

    def __init__(self, signature: KernelSignature, isa: Isa, body: Body) -> None:
        self.signature, self.isa, self.program = signature, isa, body.passes[0].word
        self.shape = shape_of(signature)
        self.declarations: dict[str, None] = {}
        # Sums first, then data, then weights: as `shaping_text` shapes registers.
        ordered = sorted(self.program.inputs)
        counters = [name for name in ordered if name[0] == "c"]
        sums, data = self.shape.sums, self.shape.data
        self.numbers = {name: str(number) for number, name in enumerate(counters)}
        for m in range(self.shape.count):
            self.numbers[f"a0.{m}"] = str(sums + m % data)
        for n in range(self.shape.columns):
            self.numbers[f"w0.{n}"] = str(sums + data + n)

    def text(self, parameters: tuple[str, ...]) -> tuple[str, list[str]]:
        """The functions and the declarations they need."""
        pointers = [p for p in parameters if p.startswith("ptr") and "%sums" not in p]
        numbers = [p for p in parameters if p.startswith("i64")]
        given = (*pointers, "i64 %ky", "i64 %step", *numbers)
        registers, preloads = range(self.shape.count), self.signature.preloads_bias
        parts = (
            self._awake(),
            *(self._begin_with_zeros(m) for m in registers),
            *(self._begin_with_bias(m) for m in registers if preloads),
            *([self._expand_first(given)] if self.signature.code else []),
            *self._products(given),
            *(self._end(m) for m in registers),
            self._all_parts(parameters, given, "begin", ""),
        )
        if preloads:
            with_bias = (*parameters, PRELOAD)
            parts = (*parts, self._all_parts(with_bias, given, "from", "ptr %begin"))
        return "\n".join(parts), list(self.declarations)

    def _all_parts(
        self, parameters: tuple[str, ...], given: tuple[str, ...], first: str, begin: str
    ) -> str:
        """All parts, one after the other."""
        name, code = self.signature.name, FunctionText()
        arguments = ", ".join(f"{each.split()[0]} {each.split()[-1]}" for each in given)
        steps = code.let(f"udiv i64 %kw, {self.signature.step}")
        if self.signature.code is not None:
            code.do(
                f"call void @{name}_ready({arguments.replace('%ky', '0').replace('%step', '0')})"
            )
        for m in range(self.shape.count):
            code.do(f"call void @{name}_{first}{m}({begin})")

        def one_row(ky: str, _: list[str]) -> list[str]:
            def one_step(step: str, _: list[str]) -> list[str]:
                here = arguments.replace("%ky", ky).replace("%step", step)
                code.do(f"call void @{name}_awake()")
                for number in range(len(self.program.steps)):
                    code.do(f"call void @{name}_product{number}({here})")
                return []

            return code.loop(steps, [], one_step, unroll=False)

        code.loop("%kh", [], one_row)
        for m in range(self.shape.count):
            code.do(f"call void @{name}_end{m}(ptr %sums)")
        return self._function(code, "_from" if begin else "", parameters)

    def _function(self, code: FunctionText, part: str, parameters: tuple[str, ...]) -> str:
        """The finished function of a part."""
        code.do("ret void")
        self.declarations.update(code.declarations)
        return code.function(self.signature.name + part, parameters)

    def _begin_with_zeros(self, m: int) -> str:
        code = FunctionText()
        for n in range(self.shape.columns):
            self._call(code, "tilezero", f"i8 {self.numbers[f'c{m}.{n}']}", "i8 immarg")
        return self._function(code, f"_begin{m}", ())

    def _begin_with_bias(self, m: int) -> str:
        code = FunctionText()
        for n in range(self.shape.columns):
            place = code.pointer("%begin", str(n * tile_registers.ROW_BYTES))
            self._move(code, tile_registers.LOAD, f"c{m}.{n}", place, "0")  # every row is the same
        return self._function(code, f"_from{m}", ("ptr %begin",))

    def _awake(self) -> str:
        code = FunctionText()
        code.do(FLOAT_ADD)
        return self._function(code, "_awake", ())

    def _end(self, m: int) -> str:
        code = FunctionText()
        stride = BLOCK * WORD_BYTES
        for n in range(self.shape.columns):
            offset = m * self.shape.distance * stride + n * tile_registers.ROW_BYTES
            place = code.pointer("%sums", str(offset))
            self._move(code, tile_registers.STORE, f"c{m}.{n}", place, str(stride))
        return self._function(code, f"_end{m}", ("ptr %sums",))

    def _products(self, given: tuple[str, ...]) -> list[str]:
        """The products of a step, each in a function of its own that loads what is new to it."""
        named = {register: name for name, register in self.program.inputs.items()}
        loaded: set[str] = set()
        functions = []
        for number, one in enumerate(self.program.steps):
            code = FunctionText()
            word = self._word(code)
            if not number:
                self._fetch(code, word)
            total, *factors = (named[register] for register in one.operands)
            for name in factors:
                if name not in loaded:
                    loaded.add(name)
                    self._load(code, name, word)
            code.do(one.instruction.text([self.numbers[name] for name in (total, *factors)]))
            assert one.instruction.declares is not None
            code.declarations[one.instruction.declares] = None
            if self.signature.code is not None:
                words, parts = self.signature.step, len(self.program.steps)
                share = range(number * words // parts, (number + 1) * words // parts)
                self._expand(code, self._step_number(code), EXPAND_STEPS, share)
            named[one.result] = total  # which the instruction overwrites
            functions.append(self._function(code, f"_product{number}", given))
        return functions

    def _word(self, code: FunctionText) -> str:
        """The first word of the window that a step takes."""
        words = code.let("mul nuw nsw i64 %ky, %kw")
        first = code.let(f"mul nuw nsw i64 %step, {self.signature.step}")
        return code.let(f"add nuw nsw i64 {words}, {first}")

    def _fetch(self, code: FunctionText, word: str) -> None:
        """Prefetch weights, line by line.

        A kernel whose tile covers the layer fetches its own, into the L1 cache. Others fetch a
        step's share of the next weights, into the L2 cache.
        """
        if self.signature.covers_layer:
            place = code.pointer(
                "%weights", code.let(f"mul i64 {word}, {self.signature.weight_bytes}")
            )
            for line in range(0, self.signature.weight_bytes * self.signature.step, LINE):
                code.prefetch(code.pointer(place, str(PREFETCH_BYTES + line)), L1_CACHE)
            return
        start = code.pointer("%later", code.let(f"mul i64 {word}, %share"))
        size = code.let(f"mul i64 %share, {self.signature.step}")
        lines = code.let(f"udiv i64 {code.let(f'add i64 {size}, {LINE - 1}')}, {LINE}")

        def one_line(line: str, _: list[str]) -> list[str]:
            offset = code.let(f"mul nuw nsw i64 {line}, {LINE}")
            code.prefetch(code.pointer(start, offset), L2_CACHE)
            return []

        code.loop(lines, [], one_line)

    def _expand_first(self, given: tuple[str, ...]) -> str:
        """Expand the weights of the first steps."""
        code = FunctionText()
        for step in range(EXPAND_STEPS):
            self._expand(code, "0", step, range(self.signature.step))
        return self._function(code, "_ready", given)

    def _step_number(self, code: FunctionText) -> str:
        """The number of a step in a window."""
        steps = code.let(f"udiv exact i64 %kw, {self.signature.step}")
        return code.let(f"add nuw nsw i64 {code.let(f'mul nuw nsw i64 %ky, {steps}')}, %step")

    def _expand(self, code: FunctionText, number: str, ahead: int, words: range) -> None:
        """Expand some words' weights of the step that comes `ahead` steps behind step `number`.

        Past the last step its weights are expanded once more, where nobody reads them.
        """
        steps = code.let(f"udiv exact i64 {code.let('mul i64 %kh, %kw')}, {self.signature.step}")
        wanted = code.let(f"add nuw nsw i64 {number}, {ahead}")
        is_there = code.let(f"icmp ult i64 {wanted}, {steps}")
        step = code.let(
            f"select i1 {is_there}, i64 {wanted}, i64 {code.let(f'sub i64 {steps}, 1')}"
        )
        size = self.signature.weight_bytes * self.signature.step
        source = code.pointer("%weights", code.let(f"mul nuw nsw i64 {step}, {size}"))
        target = self._ring_slot(code, wanted)
        for word in words:
            made = load_expanded(code, self.signature, self.isa, source, word)
            code.store(REGISTER.llvm, made, target, LINE, word * REGISTER.bytes)

    def _ring_slot(self, code: FunctionText, number: str) -> str:
        """Where in the ring the expanded weights of a step are."""
        slot = code.let(f"and i64 {number}, {RING - 1}")
        return code.pointer("%later", code.let(f"mul nuw nsw i64 {slot}, {RING_BYTES // RING}"))

    def _load(self, code: FunctionText, name: str, word: str) -> None:
        place = int(name.split(".")[1])
        if name[0] == "w":
            stride = self.signature.channels * WORD_BYTES
            if self.signature.code is not None:
                weights = self._ring_slot(code, self._step_number(code))
            else:
                weights = code.pointer("%weights", code.let(f"mul nuw nsw i64 {word}, {stride}"))
            pointer = code.pointer(weights, str(place * tile_registers.ROW_BYTES))
            self._move(code, tile_registers.LOAD, name, pointer, str(stride))
            return
        row = row_start(code, "%ky")
        offset = code.let(f"mul nuw nsw i64 %step, {self.signature.step * WORD_BYTES}")
        data = code.pointer("%data", code.let(f"add nsw i64 {row}, {offset}"))
        distance = code.let(f"mul i64 %pixel, {place * self.shape.distance}")
        self._move(code, tile_registers.LOAD, name, code.pointer(data, distance), "%pixel")

    def _move(
        self, code: FunctionText, instruction: str, name: str, place: str, stride: str
    ) -> None:
        operands = f"i8 {self.numbers[name]}, ptr {place}, i64 {stride}"
        self._call(code, f"{instruction}64", operands, "i8 immarg, ptr, i64")

    @staticmethod
    def _call(code: FunctionText, intrinsic: str, operands: str, types: str) -> None:
        code.declarations[f"declare void @llvm.x86.{intrinsic}({types})"] = None
        code.do(f"call void @llvm.x86.{intrinsic}({operands})")
