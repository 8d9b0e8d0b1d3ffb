"""Shells complete command lines: the scripts that `doit completion` prints, run where there are."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from pipelines import completion_scripts, menu
from tests.pipelines.fake_clone import Clone

COMMANDS = [*menu.COMMAND_NAMES, "help"]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone with a recipe of a folder, too."""
    made = Clone(tmp_path_factory.mktemp("completion"))
    made.write("recipes/ci/tiny.yaml", "extends: toy\n")
    return made


@pytest.fixture(scope="module")
def scripts(clone: Clone) -> dict[str, str]:
    """Shell → its script."""
    found = {}
    for shell in completion_scripts.SHELLS:
        found[shell], err = clone.doit("completion", f"shell={shell}")
        assert err == ""
    return found


def required(shell: str) -> str:
    """The path of a shell."""
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"no {shell} here")
    return found


@pytest.fixture(scope="module")
def answers(scripts: dict[str, str], clone: Clone) -> dict[tuple[str, ...], list[str]]:
    """Words of a command line, the last one unfinished → how bash completes that."""
    bash = required("bash")
    asked = [words for words, _ in COMPLETIONS]
    calls = [
        f"COMP_WORDS=(doit {' '.join(repr(word) for word in words)}); COMP_CWORD={len(words)}; "
        'COMPREPLY=(); _bitkiln_doit; echo "${COMPREPLY[*]}"'
        for words in asked
    ]
    text = "\n".join([scripts["bash"], *calls, "complete -p doit"])
    done = subprocess.run(
        [bash, "--norc", "-u", "-c", text],
        cwd=clone.root, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    *lines, how = done.stdout.split("\n")[:-1]
    assert "_bitkiln_doit" in how
    return {words: line.split() for words, line in zip(asked, lines, strict=True)}


BOARDS = ["rpi3", "rpi3_armv7", "rpi4", "rpi5", "rpi_zero2w"]
COMPLETIONS: list[tuple[tuple[str, ...], list[str]]] = [
    (("",), COMMANDS),
    (("bu",), ["build"]),
    (("-n", "2", "b"), ["build", "bench"]),
    (("help", "ver"), ["verify"]),
    (("build", "re"), ["recipe="]),
    (("verify", "recipe=toy", "la"), ["layer="]),
    (("recipes", ""), ["json="]),
    # As bash splits words at `=`, and as it does where a user has told it not to.
    (("build", "recipe", "="), ["ci/tiny", "toy"]),
    (("build", "recipe", "=", "t"), ["toy"]),
    (("build", "recipe=t"), ["recipe=toy"]),
    (("build", "recipe", "=", "toy", "hardware", "=", "rpi"), BOARDS),
    (("build", "recipe=toy", "hardware=rpi"), [f"hardware={name}" for name in BOARDS]),
    (("completion", "shell", "=", "f"), ["fish"]),
    (("run", "recipe", "=", "toy", "input", "=", "pypro"), ["pyproject.toml"]),
    (("import", "pypro"), ["pyproject.toml"]),
    (("build", "quux"), []),
]


@pytest.mark.parametrize("words", [words for words, _ in COMPLETIONS], ids=" ".join)
def test_bash_completes(answers: dict[tuple[str, ...], list[str]], words: tuple[str, ...]) -> None:
    assert answers[words] == dict(COMPLETIONS)[words]


def test_scripts_are_the_same_each_time(clone: Clone, scripts: dict[str, str]) -> None:
    for shell, text in scripts.items():
        assert clone.doit("completion", f"shell={shell}")[0] == text
        assert str(clone.root) not in text and "\x1b" not in text
        assert all(name in text for name in (*COMMANDS, "ci/tiny", "rpi_zero2w", "recipe="))


@pytest.mark.parametrize(
    ("word", "hint"), [("fsh", "did you mean 'fish'?"), ("", "accepted: bash")]
)
def test_another_shell_is_refused(clone: Clone, word: str, hint: str) -> None:
    _, err = clone.doit("completion", f"shell={word}", expect=3)
    assert err.startswith(f"ERROR: shell={word}: no such shell; {hint}")


def test_zsh_completes(scripts: dict[str, str], clone: Clone) -> None:
    """Without a terminal one can only read it."""
    path = clone.write("_doit", scripts["zsh"])
    done = subprocess.run(
        [required("zsh"), "-n", path], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_fish_completes(scripts: dict[str, str], clone: Clone) -> None:
    fish = required("fish")
    lines = [
        "doit bu",
        "doit build recipe=t",
        "doit -n 2 build hardware=rpi_",
        "doit help veri",
        "doit import pypro",
        "doit run recipe=toy input=pypro",
    ]
    asked = [f'complete -C "{line}" | string split -f 1 \\t' for line in lines]
    text = "\n".join([scripts["fish"], *asked])
    done = subprocess.run(
        [fish, "--no-config", "-c", text],
        cwd=clone.root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.split() == [
        "build",
        "recipe=toy",
        "hardware=rpi_zero2w",
        "verify",
        "pyproject.toml",
        "input=pyproject.toml",
    ]
