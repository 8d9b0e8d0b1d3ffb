"""The arm64 userland: there as a whole, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pipelines.emulating import processors, userland
from pipelines.emulating.emulated_bench import check
from pipelines.errors import UserError
from pipelines.recipe.load import load_recipe
from pipelines.recipe.overrides import Variables


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        "pipelines.emulating.userland.shutil.which", lambda tool: f"/usr/bin/{tool}"
    )
    monkeypatch.setattr(userland, "KEYRING", __file__)
    return tmp_path


def test_without_one_the_command_that_fetches_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    lack = (
        "no arm64 userland with other engines is here; to fetch one (60 MB): "
        "python -m pipelines.emulating.userland"
    )
    assert userland.lack() == lack
    monkeypatch.setattr("pipelines.emulating.emulated_bench.qemu_lacks", lambda _: [])
    with pytest.raises(UserError) as error:
        check(load_recipe("ds_cnn_int8_rpi3", {}), Variables({"peers": "litert"}, {}))
    assert error.value.message == f"peers=litert: {lack}"


def test_a_fetch_that_fails_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: Sequence[str], where: Path | None = None) -> None:
        if "download" in command and "pip" in command:
            raise UserError("pip ended with status 1: no such release")
        if "download" in command and where is not None:
            (where / "python.deb").write_bytes(b"")
        if command[0] == "dpkg":
            Path(command[-1]).mkdir()

    monkeypatch.setattr(userland, "_run", run)
    with pytest.raises(UserError, match="no such release"):
        userland.fetch()
    assert userland.lack() and not list((cache / "bitkiln/arm64").iterdir())


def test_a_fetch_is_whole_and_done_once(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def run(command: Sequence[str], where: Path | None = None) -> None:
        ran.append(Path(command[0]).name)
        if "download" in command and where is not None:
            (where / "python.deb").write_bytes(b"")
        if command[0] == "dpkg":
            Path(command[-1]).mkdir()

    monkeypatch.setattr(userland, "_run", run)
    assert userland.fetch("http://mirror") == userland.folder() == userland.fetch()
    assert ran[:3] == ["apt-get", "apt-get", "dpkg"] and len(ran) == 4
    assert userland.lack() is None
    said = capsys.readouterr().out
    assert "from http://mirror: python3.11-minimal" in said and "onnxruntime==1.32.0" in said


@pytest.mark.parametrize(
    ("tools", "keyring", "said"),
    [
        ((), __file__, "apt-get and dpkg of Debian or Ubuntu is needed to fetch a userland"),
        (("apt-get", "dpkg"), "/no/keyring", "/no/keyring is missing; run: apt install debian-"),
    ],
)
def test_what_fetching_needs(
    tools: tuple[str, ...], keyring: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "pipelines.emulating.userland.shutil.which", lambda tool: tool if tool in tools else None
    )
    monkeypatch.setattr(userland, "KEYRING", keyring)
    with pytest.raises(UserError) as error:
        userland.fetch()
    assert error.value.message.startswith(said)


def test_a_root_says_which_processor_it_is() -> None:
    (userland.root() / "usr").mkdir(parents=True)
    (userland.root() / "proc").mkdir()
    with processors.root(processors.PROCESSORS["cortex-a72"]) as root:
        assert (root / "usr").resolve() == (userland.root() / "usr").resolve()
        lines = (root / "proc/cpuinfo").read_text().splitlines()
        assert "CPU part\t: 0xd08" in lines and "CPU implementer\t: 0x41" in lines
    assert not root.exists()
