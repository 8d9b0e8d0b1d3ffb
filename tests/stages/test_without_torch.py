"""TVM does not import PyTorch, which others still may."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
import stages
import tvm
from tvm import relax
assert "torch" not in sys.modules
import torch
assert torch.is_a_stand_in
"""


def test_tvm_does_not_wait_for_pytorch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("is_a_stand_in = True\n")
    paths = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
