"""TVM without PyTorch, which it imports where that is installed.

It does so for tensors that both can see, and nobody here has any; every command would take seconds
longer. Whoever wants PyTorch itself gets it, before or after.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_READERS, _HIDDEN = ("tvm_ffi", "tvm", "tvm.relax"), "torch"


class _Hiding(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Fail for PyTorch while TVM is being imported; else find nothing."""
        if fullname == _HIDDEN and any(map(_is_being_imported, _READERS)):
            raise ModuleNotFoundError(f"{_HIDDEN} is hidden from TVM", name=fullname)
        return None


def _is_being_imported(name: str) -> bool:
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))


def hide() -> None:
    """Keep PyTorch from what imports TVM from now on."""
    sys.meta_path.insert(0, _Hiding())
