"""`doit kernels` and `doit explain`: all configurations, readable proofs, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines import targets
from pipelines.commands import explain, kernels
from pipelines.errors import UserError
from pipelines.recipe.overrides import Variables
from stages.kernels.problems import Problem
from stages.synthesizing.enumeration import candidates_for

POPCOUNTS = {"A1W1": 1, "A3W1": 2, "A2W2": 3, "A3W2": 4, "A2W3": 4, "A3W3": 6}
ONE_BIT = """\
full8_a1w1_unipolar on cortex-a53: 8x8 bytes of weights by 8 bytes of activations

a * w = A0 & W0 + v[w]
for a in 0..1, w in 0..1, where
  A0 is set for levels 1
  W0 is set for stored w 1
  v = [0, 0] per stored w, part of the bias
terms and u, then v, for all pairs, one stored w a column:
  a=0:     0+0=0      0+0=0
  a=1:     0+0=0      1+0=1

w{plane}.{register}.{use}: 2 rows of 8 bytes; a{plane}: the same for every row; sums: 16 bits a row
v0     = and                  w0.0.1, a0
v1     = cnt                  v0
v2     = and                  w0.1.2, a0
v3     = cnt                  v2
v4     = addp.8               v1, v3
v5     = and                  w0.2.3, a0
v6     = cnt                  v5
v7     = and                  w0.3.4, a0
v8     = cnt                  v7
v9     = addp.8               v6, v8
v10    = addp.8               v4, v9
v11    = adalp.u8             sums, v10
-> sums = v11

proved for all inputs: every sum gains its own row's products, up to u and v
after LLVM: 12 arithmetic instructions, 6 loads, 1 stores, 0 copies, 0 constants
"""


def variables(**command: str) -> Variables:
    return Variables(command, {})


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["neon_armv7", "avx2"])
def test_every_configuration_has_its_row(isa: str, tmp_path: Path) -> None:
    file = tmp_path / "kernels.json"
    kernels.run(variables=variables(isa=isa, json=str(file)))
    found = json.loads(file.read_text())
    rows = {(row["configuration"], row["encoding"]): row for row in found["carried"]}
    assert len(rows) == len(found["carried"]) == 27
    for (configuration, _), row in rows.items():
        if row["plan"].rstrip("0123456789") not in ("and", "xor"):
            assert row["popcounts"] == POPCOUNTS.get(configuration, 2)
        assert 0 < row["cycles_per_1000_macs"] <= row["plain"]
    assert len(found["full"]) == (54 if isa.startswith("neon") else 0)
    for row in found["full"]:
        assert row["after_llvm"] == row["instructions"]


def test_a_small_kernel_reads_as_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    explain.run(variables=variables(kernel="full8_a1w1_unipolar", isa="neon_aarch64"))
    assert capsys.readouterr().out == ONE_BIT


def test_products_of_small_weights_say_how_small(capsys: pytest.CaptureFixture[str]) -> None:
    explain.run(variables=variables(kernel="mac8_dot4_w64_5x16_none_avx2", core="generic-x86-64"))
    text = capsys.readouterr().out
    assert "for a of 8 bits and w of at most 64" in text
    assert "vpmaddubsw_ymm" in text and "weight limit: 64" in text


def test_products_of_weights_that_no_byte_holds_say_how_large(
    capsys: pytest.CaptureFixture[str],
) -> None:
    explain.run(variables=variables(kernel="mac8_wide_dot2_w256_2x16_none_avx512vpopcntdq"))
    text = capsys.readouterr().out
    assert "multiplication of widened bytes" in text and "w of at most 256" in text
    assert "weight limit: 256" in text


MIX = "popcount_mix3_a2x3xa_w2x3xa_bipolar_4x32_none_avx512vpopcntdq"


def test_a_kernel_is_explained_by_its_identity(capsys: pytest.CaptureFixture[str]) -> None:
    explain.run(variables=variables(kernel=MIX, core="icelake"))
    text = capsys.readouterr().out
    assert "a * w = 2 (A1 & W1) + 4 (W0 ? A0 : A1) + 4 (A0 ? W0 : W1) + u[a] + v[w]" in text
    assert "vpternlogd_select" in text and "level pairs: 16" in text


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("macf32_dot1_14x32_none_avx512bw", "multiplication of float32, 1 a lane and step"),
        ("macbf16_dot2_7x32_none_avx512bw", "multiplication of bfloat16, 2 a lane and step"),
        ("macf32_dot1_4x8_none_neon_armv7", "vfma "),
    ],
)
def test_kernels_of_floats_are_explained(
    name: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    explain.run(variables=variables(kernel=name))
    text = capsys.readouterr().out
    assert says in text
    assert "rounding: left out: sums of real numbers" in text


@pytest.mark.parametrize(
    ("method", "says"), [("dot2", "2 a lane and step"), ("dot1_by4", "8 a register")]
)
def test_kernels_of_float16_are_explained(
    method: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"macf16_{method}_2x32_chunk_neon_aarch64"
    explain.run(variables=variables(kernel=name, core="cortex-a76"))
    text = capsys.readouterr().out
    assert says in text and "added up in 16 bits, at most 32 a sum, and these sums in" in text
    assert "fmla.8h " in text and "fcvtl " in text


def test_a_kernel_of_tiles_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """Of its tile, the part that one register of data makes."""
    name = "mac8_tile12_28x32_none_avx512bw"
    explain.run(variables=variables(kernel=name, core="sapphirerapids"))
    text = capsys.readouterr().out
    assert "12 words of 4 channels a step" in text
    assert "tdpbusd              c0.0, a0.0, w0.0" in text and "c1." not in text
    assert "weight limit: 128" in text and "predicted: 1." in text


def test_a_kernel_that_makes_bytes_of_weights_is_explained(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "mac8_tile16_odd1_61x16_none_avx512bw"
    explain.run(variables=variables(kernel=name, core="sapphirerapids"))
    text = capsys.readouterr().out
    assert "stored is (w - 1) / 2 in 1 bit; one instruction makes bytes of 64 weights" in text
    assert "expanded: odd1" in text


def test_candidates_of_every_family_can_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    profile = targets.profiles("avx2", None)[0]
    candidates = candidates_for(Problem(2, 1, "bipolar"), profile)
    best = {candidate.algorithm: candidate.signature for candidate in reversed(candidates)}
    assert set(best) == {"bitserial", "lookup", "mac8", "winograd"}
    for signature in (*best.values(), best["bitserial"].flushed("chunk")):
        explain.run(variables=variables(kernel=signature.name, core="haswell"))
        text = capsys.readouterr().out
        assert "proved for all inputs" in text and "predicted: " in text
    explain.run(variables=variables(kernel="a2w1_bipolar", isa="avx2", core="haswell"))
    assert capsys.readouterr().out.startswith(candidates[0].signature.name)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ({}, "kernel= is missing"),
        ({"kernel": "fast"}, "kernel=fast: not a kernel; accepted is"),
        ({"kernel": "a2w2_bipolar", "isa": "avx3"}, "isa=avx3: unknown instruction set"),
        ({"kernel": "a2w2_bipolar", "core": "cortex-a5"}, "core=cortex-a5: unknown core"),
        ({"kernel": "a2w2_bipolar", "isa": "avx2", "core": "cortex-a53"}, "core=cortex-a53 has no"),
        ({"kernel": "full8_a1w1_unipolar", "isa": "avx2"}, "only NEON kernels reduce in one call"),
        (
            {"kernel": "popcount_xor1_a1x2_w1x2_bipolar_9x32_window_avx2", "core": "haswell"},
            "avx2 on haswell has no such kernel; did you mean",
        ),
    ],
)
def test_refusals(command: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match="(?s)" + message.replace("(", r"\(")):
        explain.run(variables=variables(**command))


def test_kernels_refuses_a_core_without_the_set() -> None:
    with pytest.raises(UserError, match="core=haswell has no instruction set avx512bw"):
        kernels.run(variables=variables(isa="avx512bw", core="haswell"))
