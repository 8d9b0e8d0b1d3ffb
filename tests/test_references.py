"""The releases whose results are followed: pinned, and named where their rules are."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

from stages.numerics.onnx_islands import RUNTIME

ROOT = Path(__file__).parents[1]
NAMED = {"onnxruntime": "ONNX Runtime", "ai-edge-litert": "LiteRT", "onnx": "", "qonnx": ""}
"""Distributions of reference runtimes, with the names that pages give them."""


def pins() -> dict[str, str]:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extra = stated["project"]["optional-dependencies"]["test"]
    found = (re.fullmatch(r"([a-z-]+)==([0-9.]+)", each) for each in extra)
    return {match[1]: match[2] for match in found if match}


@pytest.mark.parametrize("distribution", NAMED)
def test_a_reference_is_pinned_and_installed(distribution: str) -> None:
    assert distribution in pins()
    try:
        installed = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{distribution} is not installed")
    assert installed == pins()[distribution]


@pytest.mark.parametrize("page", ["stages/numerics/README.md", "stages/importing/README.md"])
def test_pages_name_the_release(page: str) -> None:
    text = (ROOT / page).read_text()
    for distribution, name in NAMED.items():
        release = ".".join(pins()[distribution].split(".")[:2])
        assert not name or f"{name} {release}" in text
        others = {found for found in re.findall(rf"{name} (\d+\.\d+)", text)} if name else set()
        assert others <= {release}, f"{page} names {name} {others}"


def test_the_runtime_that_import_names_is_the_pinned_one() -> None:
    release = ".".join(pins()["onnxruntime"].split(".")[:2])
    assert f"ONNX Runtime {release}" == RUNTIME
