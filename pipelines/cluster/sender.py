"""What a build here brings into the shared store for workers: files of recipes, finished stages."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.builds import plan_execution
from pipelines.builds.plan_execution import PlanExecution
from pipelines.caching.entry import BadEntryError, checked
from pipelines.caching.remote import entry_path
from pipelines.caching.remote_files import UnreachableError
from pipelines.cluster.orders import ORIGINALS
from pipelines.errors import UserError
from pipelines.recipe import model_files
from pipelines.store.manifest import Parts, render
from pipelines.store.store import Store

if TYPE_CHECKING:
    from pipelines.caching.remote import Remote


class Sender:
    """Writes into the shared store what is not there, each once. Safe to share by threads."""

    def __init__(self, shared: Remote) -> None:
        self._shared = shared
        self._sent: set[str] = set()

    def files(self, key: str, files: Mapping[str, Path]) -> None:
        """Send files that a recipe names; UserError if that cannot be."""
        where = entry_path(ORIGINALS, key)
        if where in self._sent:
            return
        with _reached(self._shared):
            if self._shared.backend.size(where) is None:
                self._write(key, files)
            if self._shared.backend.size(where) is None:
                raise UserError(
                    f"the files that the recipe names ({', '.join(list(files)[:3])}) travel to "
                    f"workers by {self._shared.settings.shown}, which is not written from here; "
                    "the cache file needs `sign: FILE`, and no http"
                )
        self._sent.add(where)

    def artifacts(self, execution: PlanExecution) -> None:
        """Send what is here of a recipe, if this machine may: workers need not build it then."""
        if not self._shared.settings.writes:
            return
        for step in execution.plan.steps:
            manifest = execution.current(step) if execution.is_current(step) else None
            if manifest is None:
                continue
            where = entry_path(manifest.stage, manifest.key)
            if where not in self._sent:
                self._sent.add(where)
                with _reached(self._shared):
                    if self._shared.backend.size(where) is None:
                        self._shared.share(plan_execution.STORE, [manifest])

    def _write(self, key: str, files: Mapping[str, Path]) -> None:
        data = {name: model_files.contents(path) for name, path in files.items()}
        # The local store needs no second copy of them.
        with tempfile.TemporaryDirectory() as folder:
            store = Store(Path(folder))
            manifest = store.commit(ORIGINALS, key, "table", Parts(data, {}), {})
            try:
                checked(render(manifest).encode())
            except BadEntryError as error:
                said = f"the files that the recipe names cannot be sent: {error}"
                raise UserError(said) from None
            self._shared.share(store, [manifest])


@contextmanager
def _reached(shared: Remote) -> Iterator[None]:
    try:
        yield
    except UnreachableError as error:
        raise UserError(f"{shared.settings.shown}: cannot be reached: {error}") from None
