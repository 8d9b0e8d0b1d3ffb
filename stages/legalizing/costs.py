"""What a multiply-accumulate costs under each algorithm, from the instruction counts of its body.

The figure is vector instructions per thousand multiply-accumulates, loads left out, times the
core's cycles per instruction: enough to rank algorithms, not to predict milliseconds.
"""

from __future__ import annotations

from hw.costs import core_costs
from hw.isa import isa_of
from hw.profile import Hardware


def bitserial_cycles(hardware: Hardware, activation_bits: int, weight_bits: int) -> float:
    """Modelled cycles per 1,000 multiply-accumulates of the popcount family."""
    isa, costs = isa_of(hardware), core_costs(hardware.core)
    per_term = costs.logic + costs.count[isa.name] + costs.add
    return 1000 * activation_bits * weight_bits * per_term / (isa.lanes * 32)


def mac8_cycles(hardware: Hardware) -> float:
    """Modelled cycles per 1,000 multiply-accumulates of 8-bit products."""
    isa, costs = isa_of(hardware), core_costs(hardware.core)
    return 1000 * costs.dot[isa.dot.name] / (isa.lanes * isa.dot_group)
