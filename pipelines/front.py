"""The front door: what doit's command line says, turned into a plan, tasks and doit's settings."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from pipelines import actions, execute, graph, keys, plan
from pipelines.errors import UserError
from pipelines.progress import Progress

DATABASE = keys.ROOT / "artifacts" / ".doit.db"
VARIABLES = (
    *("recipe", "file", "input", "out", "json", "threads", "samples", "repeat"),
    *("core", "isa", "kernel"),
    *("reference", "layer", "packages", "pictures"),
    *("peers", "peers.larq", "own", "primitives", "grow"),
)
INTERRUPTED = "interrupted; the stages that were finished are kept"


class Codec:
    """JSON for doit's database that reads a broken one as empty: the store holds the truth."""

    def encode(self, data: Any) -> str:
        """Return the text of plain data."""
        return json.dumps(data)

    def decode(self, data: str) -> Any:
        """Return the plain data of a text, or an empty database."""
        try:
            tree = json.loads(data)
        except ValueError:
            return {}
        return tree if isinstance(tree, dict) else {}


@dataclass(frozen=True)
class Session:
    """One call of doit."""

    plan: plan.Plan | None
    arguments: dict[str, Any]
    config: dict[str, Any]

    def tasks(self) -> Iterator[graph.Task]:
        """Yield every task."""
        yield from graph.tasks(self.plan, self.arguments)


def open_session(argv: Sequence[str]) -> Session:
    """Return what a command line asks for, or raise UserError."""
    from pipelines import load, overrides

    variables = overrides.parse(argv, VARIABLES)
    word = _word(argv)
    sys.excepthook = _quiet_interrupt
    # Infinities and NaN are found where they matter, and said in a sentence with the layer's name.
    warnings.filterwarnings("ignore", r".* encountered in ", RuntimeWarning)
    _prepare_database()
    resolved = None
    if variables.recipe is not None:
        resolved = load.load_recipe(variables.recipe, variables.fields)
    elif word in ("clean", "forget") and _is_bare(argv):
        raise UserError(f"doit {word} works on one recipe\n{actions.without_recipe(word)}")
    made = plan.of(resolved) if resolved else None
    return Session(made, {"variables": variables, "resolved": resolved}, _config(word))


def _config(word: str) -> dict[str, Any]:
    # `run`, `clean` and `forget` are words of doit's own, which then does the default tasks.
    default = {"run": ["run"], "clean": ["build"], "forget": ["build"]}.get(word, ["recipes"])
    return {
        "reporter": Progress,
        "default_tasks": default,
        "backend": "json",
        "codec_cls": Codec,
        "dep_file": str(DATABASE),
        "verbosity": 2,
    }


def _word(argv: Sequence[str]) -> str:
    """Return the first word that is neither a flag nor a variable."""
    return next((a for a in argv if not a.startswith("-") and "=" not in a), "")


def _is_bare(argv: Sequence[str]) -> bool:
    """Whether a doit command got neither tasks nor flags, so that it takes the default tasks."""
    return len([a for a in argv if "=" not in a]) == 1


def _prepare_database() -> None:
    """Make the folder of doit's database, and remove a database that is not text."""
    try:
        execute.STORE.root.mkdir(parents=True, exist_ok=True)
        DATABASE.read_text(encoding="utf-8")
    except FileNotFoundError:
        pass
    except UnicodeDecodeError:
        DATABASE.unlink(missing_ok=True)
        print("warning: doit's database was damaged; starting a new one", file=sys.stderr)
    except OSError as error:
        where = Path(error.filename or execute.STORE.root)
        raise UserError(f"{where}: {error.strerror}; builds are kept there") from error


def _quiet_interrupt(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Say one sentence for Ctrl-C; the process still ends as one that was interrupted."""
    if issubclass(kind, KeyboardInterrupt):
        print(f"\n{INTERRUPTED}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)
