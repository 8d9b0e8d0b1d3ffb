"""NOTICE and the bill of materials: what is in a package, under which licences."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.options import PACKAGE_FORMATS, PackageFormat
from stages.packaging.files.bill_of_materials import bill, components, notice
from tests.pages import ROOT
from tests.stages.packaging.support import (
    AARCH64,
    TARGETS,
    X86_64,
    package,
)


@given(st.sets(st.sampled_from([*PACKAGE_FORMATS]), min_size=1))
def test_notice_and_bill_say_the_same(formats: set[PackageFormat]) -> None:
    found = components("toy", formats, AARCH64, {"ziglang": "1"})
    text = notice(found).partition("Licence of Zig\n")[0]
    said = json.loads(bill("toy", "1", found, AARCH64, {}, "00" * 32, {}))
    for part in said["components"][1:]:
        for place in part["properties"]:
            assert place["value"] in text
    assert ("compiler-rt" in text) == any(p["name"] == "compiler-rt" for p in said["components"])
    assert ("glibc (crt1.o" in text) == any(p["name"][:5] == "glibc" for p in said["components"])


@pytest.mark.parametrize("hardware", TARGETS, ids=lambda item: item.name)
def test_the_bill_is_of_cyclonedx_and_names_the_files(hardware: Any) -> None:
    validation = pytest.importorskip("cyclonedx.validation.json")
    schema = pytest.importorskip("cyclonedx.schema").SchemaVersion.V1_6
    files = package(hardware)
    text = files["toy.cdx.json"].decode()
    assert validation.JsonStrictValidator(schema).validate_str(text) is None
    bill = json.loads(text)
    named = bill["metadata"]["component"]
    assert {item["name"] for item in named["components"]} == files.keys() - {
        *("manifest.json", "toy.cdx.json")
    }
    for item in named["components"]:
        assert item["hashes"][0]["content"] == hashlib.sha256(files[item["name"]]).hexdigest()
    assert named["version"] == json.loads(files["manifest.json"])["version"]
    assert "timestamp" not in text


def test_licences_are_the_ones_of_the_sources() -> None:
    text = package(X86_64)["NOTICE"].decode()
    assert (ROOT / "LICENSE").read_text().strip("\n") in text
    found = importlib.util.find_spec("ziglang")
    assert found and found.origin
    assert (Path(found.origin).parent / "LICENSE").read_text().strip("\n") in text
