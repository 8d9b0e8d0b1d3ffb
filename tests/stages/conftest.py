"""What tests of stages share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from hw.isa import Isa
from hw.isa.fingerprint import fingerprint
from stages import synthesizing
from stages.kernels.signature import KernelSignature
from stages.kernels.signature_text import signature_text
from stages.kinds import Table
from stages.synthesizing.body import Body
from stages.synthesizing.certificate import certify
from tests.kept import kept


@pytest.fixture(scope="session", autouse=True)
def proved_once() -> Iterator[None]:
    """What was proved of a kernel is not proved again for every model that uses it."""

    def certified(signature: KernelSignature, isa: Isa, body: Body, text: str) -> Table:
        def proof() -> bytes:
            return json.dumps(certify(signature, isa, body, text)).encode()

        about = {"kernel": signature_text(signature), "isa": fingerprint(isa), "text": text}
        return dict(json.loads(kept("certificate", about, proof)))

    with patch.object(synthesizing, "certify", certified):
        yield
