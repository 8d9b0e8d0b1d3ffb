"""What `board=` and the boards file may say."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import UserError
from pipelines.remote.board_addresses import VARIABLE, Board, boards
from pipelines.remote.transport import Ssh, UnreachableBoardError, ended, reached, transport
from tests.pipelines.fake_clone import Clone
from tests.stages.pipeline import board

ACCEPTED = "user@host[:port], local, or a name or kind of the file that BITKILN_BOARDS names"

FILE = """\
boards:
  - {name: kitchen, address: pi@192.168.1.20, cores: [2, 3], kind: rpi4}
  - {name: attic, address: "pi@[fe80::1%eth0]:2222", kind: rpi4}
  - {name: desk, address: local}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "boards.yaml"
    path.write_text(FILE)
    monkeypatch.setenv(VARIABLE, str(path))
    return path


@pytest.fixture(autouse=True)
def _none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def test_addresses() -> None:
    assert [b.address for b in boards("pi@one,two:22, pi@one,local")] == [
        "pi@one",
        "two:22",
        "local",
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("-oProxyCommand=x", f"an address does not begin with '-'; accepted: {ACCEPTED}"),
        ("pi@one,-x", f"an address does not begin with '-'; accepted: {ACCEPTED}"),
        ("pi@-oProxyCommand=x", f"is no address; accepted: {ACCEPTED}"),
        ("", f"is no address; accepted: {ACCEPTED}"),
        ("pi@one two", f"is no address; accepted: {ACCEPTED}"),
        ("pi@one;reboot", f"is no address; accepted: {ACCEPTED}"),
        ("pi@$(reboot)", f"is no address; accepted: {ACCEPTED}"),
        ("a@b@c", f"is no address; accepted: {ACCEPTED}"),
        ("pi@one:0", "0 is no port; accepted: 1 to 65535"),
        ("pi@one:65536", "65536 is no port; accepted: 1 to 65535"),
    ],
)
def test_what_is_no_address(text: str, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        boards(text)
    assert error.value.message == f"board={text.split(',')[-1]}: {sentence}"


@given(st.text(max_size=30))
def test_nothing_reaches_ssh_as_an_option(text: str) -> None:
    try:
        found = boards(text)
    except UserError:
        return
    for each in found:
        words = Ssh(each).command(["true"]) if not each.is_local else []
        for word in words[words.index("--") + 1 : -1] if words else []:
            assert not word.startswith("-") and word.isprintable() and " " not in word


def test_names_and_kinds_of_a_file(file: Path) -> None:
    assert boards("kitchen") == (
        Board(name="kitchen", address="pi@192.168.1.20", cores=(2, 3), kind="rpi4"),
    )
    assert [b.name for b in boards("rpi4,desk")] == ["kitchen", "attic", "desk"]
    attic = Ssh(boards("attic")[0])
    assert attic.target == ("pi@[fe80::1%eth0]", "2222")
    assert attic.command(["true"])[-4:] == ["2222", "--", "pi@fe80::1%eth0", "true"]
    with pytest.raises(UserError) as error:
        boards("kitchn")
    assert error.value.message.endswith("has no board of this name; did you mean 'kitchen'?")


def test_a_board_of_another_kind(file: Path) -> None:
    with pytest.raises(UserError) as error:
        reached("kitchen", board("rpi3"))
    assert error.value.message == (
        "board=kitchen: it is a rpi4, and what is built is for rpi3; give hardware=rpi4, or "
        "another board"
    )
    assert [type(to) for to in reached("kitchen", board("rpi4"))] == [Ssh]
    assert reached(None, board("rpi4")) == []


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{name: a, address: -x}", "'-x' is no address; accepted: user@host[:port], local"),
        ("{name: a, address: b, kind: rpi9}", "no board 'rpi9'; did you mean 'rpi"),
        ("{name: a, address: b, core: [1]}", "unknown field; did you mean 'cores'?"),
        ("{name: kitchen, address: b}", "'kitchen' is the name of several boards"),
        ("{name: 'a b', address: b}", "name"),
        ("{name: a, address: b, cores: [-1]}", "cores[0]"),
    ],
)
def test_faults_of_a_file(line: str, sentence: str, file: Path) -> None:
    file.write_text(f"{FILE}  - {line}\n")
    with pytest.raises(UserError) as error:
        boards("kitchen")
    assert "boards.yaml:5:" in error.value.message or "boards.yaml:2:" in error.value.message
    assert sentence in error.value.message


def test_a_file_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/no/such/boards.yaml")
    with pytest.raises(UserError, match=r"BITKILN_BOARDS=/no/such/boards\.yaml: there is no such"):
        boards("kitchen")


def test_what_a_board_prints_is_bounded() -> None:
    """Whatever its shell says, it takes no more memory than a few lines need, and is killed."""
    pi = Board(name="pi", address="pi@one")
    with pytest.raises(UnreachableBoardError, match="pi: it prints without end"):
        ended(pi, ["yes"], None, 60)
    with pytest.raises(UnreachableBoardError, match="pi: no answer in 0 s"):
        ended(pi, ["sh", "-c", "sleep 60 & wait"], None, 0.1)
    done = ended(pi, ["sh", "-c", "cat; echo no >&2; exit 3"], "here", 60)
    assert (done.stdout, done.stderr, done.returncode) == ("here", "no\n", 3)


def test_a_wrong_board_is_refused_before_anything_is_built(clone: Clone) -> None:
    for word in ("build", "run", "verify", "tune", "bench"):
        out, err = clone.doit(word, "recipe=toy", "board=pi@one:0", expect=3)
        assert "board=pi@one:0: 0 is no port; accepted: 1 to 65535" in err and not out, word
    assert not clone.runs()


def test_words_are_quoted_for_the_shell_of_a_board() -> None:
    to = transport(Board(name="pi", address="pi@one"))
    lab = transport(Board(name="lab", address="pi@one", ssh_config="~/lab config"))
    assert str(Path.home() / "lab config") in lab.command(["true"])
    assert to.command(["sh", "-c", "echo $HOME; ls *"])[-1] == "sh -c 'echo $HOME; ls *'"
