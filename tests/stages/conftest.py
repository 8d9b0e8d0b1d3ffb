"""What tests of stages share."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from hw.isa import Isa
from hw.isa.fingerprint import fingerprint
from stages import synthesizing
from stages.kinds import Table
from stages.qnn.signature import KernelSignature
from stages.synthesizing.body import Body
from stages.synthesizing.certificate import certify


@pytest.fixture(scope="session", autouse=True)
def proved_once() -> Iterator[None]:
    """What was proved of a kernel is not proved again for every model that uses it."""
    proved: dict[tuple[object, ...], Table] = {}

    def certified(signature: KernelSignature, isa: Isa, body: Body, text: str) -> Table:
        key = signature, fingerprint(isa), text
        if key not in proved:
            proved[key] = certify(signature, isa, body, text)
        return proved[key]

    with patch.object(synthesizing, "certify", certified):
        yield
