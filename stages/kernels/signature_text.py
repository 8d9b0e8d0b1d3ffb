"""Signatures as canonical JSON: the form that they have as an attribute of an operator."""

from __future__ import annotations

import json
from dataclasses import asdict

from pydantic import TypeAdapter

from stages.kernels.family_text import from_plain, to_plain
from stages.kernels.operand_storage import WORD_BITS
from stages.kernels.signature import KernelSignature

_SIGNATURE = TypeAdapter(KernelSignature)


def signature_text(signature: KernelSignature) -> str:
    """A signature as canonical JSON, the form it has as an attribute."""
    data = asdict(signature)
    data["products"] = None if signature.products is None else to_plain(signature.products)
    data["tables"] = data.pop("lut")  # the text keeps its spelling: kernels' names depend on it
    if signature.word_bits == WORD_BITS:
        del data["word_bits"]  # names of compiled kernels depend on the text
    if signature.stored is not None and not signature.inner:
        del data["stored"]["inner"]
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def parse_signature(text: str) -> KernelSignature:
    """The signature of a text that `signature_text` gave."""
    data = json.loads(text)
    if data["products"] is not None:
        data["products"] = from_plain(data["products"])
    data["lut"] = data.pop("tables")
    return _SIGNATURE.validate_python(data)
