"""Tables stay readable whatever is in them."""

from __future__ import annotations

import pytest

from pipelines.output import printed_tables


def test_long_texts_lose_their_middle_but_in_the_last_column(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "first/Relu;" + "between/" * 30 + ";last/Conv2D"
    printed_tables.show(
        "layers", [{"layer": name, "us": "1.5", "detail": name}], ["layer", "us", "detail"]
    )
    line = capsys.readouterr().out.splitlines()[-1]
    cell = line.split()[0]
    assert len(cell) == printed_tables.LONGEST
    assert cell.startswith("first/Relu;") and cell.endswith(";last/Conv2D")
    assert line.endswith(name)
