"""From a packed model to a program: shared kernels, item keys, where results go."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

import pytest
from tvm import relax

from hw.profile import Hardware
from stages import scheduling, synthesizing
from stages.kinds import Model
from stages.options import LegalizeOptions
from stages.packaging.compiling.kernel_objects import HELPER, ITEM
from stages.packaging.program.kernel_program import Program, Slot
from stages.packaging.program_builder import program_of
from tests.kept import kept
from tests.stages.packaging.kernel_cases import CASES
from tests.stages.packaging.level_net import BIT, Net, options
from tests.stages.packaging.programs import pack
from tests.targets import AARCH64, ARMV7, SSE2

Problems = dict[str, Mapping[str, object]]


def linearize(
    model: Model, hardware: Hardware, choice: LegalizeOptions = BIT
) -> tuple[Program, Problems]:
    """The program, not compiled, and the problem of every item it asked for, by symbol."""
    asked: Problems = {}

    def memo(kind: str, problem: Mapping[str, object], build: Callable[[], bytes]) -> bytes:
        assert kind in (ITEM, HELPER) and callable(build)
        if kind == ITEM:
            asked[str(problem["symbol"])] = problem
        return b""

    packed = pack(model, hardware, choice)
    bodies = synthesizing.run(model=packed, hardware=hardware, memo=kept)
    schedules = scheduling.run(model=packed, hardware=hardware, choices={})
    return program_of(packed, bodies, schedules, hardware, memo), asked


def tower(bits: tuple[int, ...], seed: int = 0) -> Model:
    """Equal convolutions, one behind the other; `bits` of the weights of each."""
    net = Net((1, 32, 6, 6), seed)
    x = net.quant(net.x, "a", 2, 0.5)
    for layer, width in enumerate(bits):
        y = net.conv(x, f"c{layer}", 32, bits=width, encoding="signed")
        x = net.quant(net.batch_norm(y, f"bn{layer}", 8.0), f"q{layer}", 2, 0.5)
    return net.model(net.conv(x, "last", 32))


def test_equal_layers_share_one_kernel() -> None:
    program, asked = linearize(tower((1, 1, 1)), SSE2)
    symbols = [call.symbol for call in program.calls]
    assert len(symbols) == 5
    assert symbols[1] == symbols[2] == symbols[3]
    assert set(asked) == set(symbols)
    # Their sums are a function of their own, as are those of the last.
    helpers = {name for name in program.objects if name.startswith("sums_")}
    assert len(helpers) == 2
    assert sorted(program.objects.keys() - helpers) == sorted(f"{name}.o" for name in asked)
    weights = [call.reads[1] for call in program.calls[1:4]]
    assert len(set(weights)) == 3, "every layer has its own weights"


def test_models_of_equal_form_ask_for_equal_items() -> None:
    _, one = linearize(tower((2, 1), seed=1), SSE2)
    _, other = linearize(tower((2, 1), seed=2), SSE2)
    assert one == other


@pytest.mark.parametrize(
    ("width", "kept"),
    [
        (3, [True, True, False, True, True]),
        # Ternary weights want other planes than digits of the layer before.
        (2, [True, False, False, True, True]),
    ],
)
def test_a_layer_of_other_precision_changes_its_own_item_and_who_writes_its_planes(
    width: int, kept: list[bool]
) -> None:
    before, _ = linearize(tower((1, 1, 1)), SSE2)
    after, _ = linearize(tower((1, width, 1)), SSE2)
    old, new = ([call.symbol for call in program.calls] for program in (before, after))
    assert [a == b for a, b in zip(old, new, strict=True)] == kept


def test_an_item_depends_on_the_code_of_a_profile_and_not_on_its_name() -> None:
    _, asked = linearize(tower((1,)), SSE2)
    renamed = SSE2.model_copy(update={"name": "other", "threads": 7, "description": "other"})
    assert linearize(tower((1,)), renamed)[1] == asked
    newer = SSE2.model_copy(update={"features": ("+sse4.1",)})
    assert not linearize(tower((1,)), newer)[1].keys() & asked.keys()


def test_a_problem_is_plain_json_without_places_or_numbers_of_objects() -> None:
    _, asked = linearize(CASES["residual_a2w1"]().model, AARCH64)
    for problem in asked.values():
        text = json.dumps(problem, sort_keys=True)
        assert json.loads(text) == problem
        assert not re.search("/home/|/tmp/|object at ", text)


@pytest.mark.parametrize("hardware", (SSE2, ARMV7), ids=lambda item: item.name)
def test_the_same_model_gives_the_same_program(hardware: Hardware) -> None:
    case = CASES["outputs_of_every_kind"]
    first, second = (linearize(case().model, hardware)[0] for _ in range(2))
    assert first.calls == second.calls and first.buffers == second.buffers
    assert list(first.objects) == list(second.objects)


def test_an_output_is_written_in_place() -> None:
    program, _ = linearize(CASES["float_output_chain"]().model, SSE2, options(every="mac8"))
    assert [spec.name for spec in program.outputs] == ["y0", "y1", "y2"]
    assert program.calls[-1].writes == tuple(Slot("output", f"y{n}") for n in range(3))
    assert len(program.buffers) == 1


def test_every_form_of_an_edge_is_a_buffer_of_its_own() -> None:
    net = Net((1, 40, 4, 5))
    x = net.quant(net.x, "a", 2, 0.5)
    model = net.model(net.conv(x, "d", 9), net.conv(x, "m", 9, 5))
    program, _ = linearize(model, SSE2, options(every="bitserial", m="mac8"))
    first, *readers = program.calls
    assert len(first.writes) == 2 and set(first.writes) == {call.reads[0] for call in readers}
    # uint32 [2, 6, 7, 2] with a halo of one; bytes [8, 9, 64] with a halo of two.
    assert sorted(program.buffers.values()) == sorted((2 * 6 * 7 * 2 * 4, 8 * 9 * 64))


def test_a_pool_reads_what_a_convolution_reads() -> None:
    net = Net((1, 32, 6, 6))
    x = net.quant(net.x, "a", 2, 0.5)
    pool = net.op(relax.op.nn.max_pool2d(x, (2, 2), (2, 2)), "p")
    program, _ = linearize(net.model(net.conv(x, "c", 32), net.conv(pool, "d", 32)), SSE2)
    assert {call.symbol.rsplit("_", 1)[0] for call in program.calls} == {
        "elementwise",
        "qnn_bitserial_conv2d",
        "qnn_max_pool2d",
    }
