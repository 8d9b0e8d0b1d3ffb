"""Every kind of composite to its kernel."""

from __future__ import annotations

from typing import Any

from hw.profile import Hardware
from stages.kinds import Table
from stages.packaging.composite import Composite
from stages.packaging.depthwise import Depthwise
from stages.packaging.kernel import Kernel
from stages.packaging.lower import Convolution, FloatInput, Lowering, Pool
from stages.packaging.plain import lower_plain
from stages.packaging.products import Products
from stages.qnn.composites import DEPTHWISE, PLAIN, PRODUCTS


def lower(function: Any, symbol: str, schedule: Table, bodies: Table, hardware: Hardware) -> Kernel:
    """The kernel `symbol` of a composite."""
    kind = str(function.attrs["composite"])
    if kind == PLAIN:
        return lower_plain(function, symbol, hardware)
    composite = Composite(function)
    lowering: type[Lowering] = Lowering
    if kind == PRODUCTS:
        lowering = Products
    elif kind == DEPTHWISE:
        lowering = Depthwise
    elif composite.is_convolution:
        lowering = Convolution
    elif composite.main is not None:
        lowering = Pool
    elif composite.reads_floats:
        lowering = FloatInput
    return lowering(composite, symbol, schedule, bodies, hardware).kernel()
