"""Building one step: read its inputs, call the stage, commit its artifact, note it as a root.

A step's key holds the digests of its *actual* inputs. It is therefore known only when these are
built, and a stage whose inputs came out as before is not run again whatever changed above it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from hw.core_costs import core_costs
from pipelines import work_folder
from pipelines.builds.plan import CALIBRATION, IMPORTING, MEASUREMENTS, Plan, Step
from pipelines.builds.stage_calls import call, check_unedited
from pipelines.errors import UserError, shown
from pipelines.output import build_progress
from pipelines.recipe import model_files
from pipelines.store import keys, roots
from pipelines.store.items import Memo
from pipelines.store.manifest import Content, DamagedError, Manifest, Parts, output_digest
from pipelines.store.store import Store

if TYPE_CHECKING:
    from pipelines.caching.remote import Remote

Origin = Literal["cached", "fetched", "built"]
Read = TypeVar("Read")
"""What is read of an artifact."""

STORE = Store(work_folder.ARTIFACTS)
"""The store of the work folder."""
_ATTEMPTS = 3
"""Builds of an artifact that cannot be read back, before the disk is blamed."""


@dataclass(frozen=True)
class Address:
    """Where a step's artifact is kept, and all that went into that key."""

    key: str
    ingredients: dict[str, Any]


class PlanExecution:
    """Builds the steps of one plan, and reads their artifacts, in one store."""

    def __init__(self, plan: Plan, store: Store = STORE) -> None:
        self.plan = plan
        self.store = store
        self._known: dict[str, Manifest] = {}

    def ingredients(self, step: Step) -> dict[str, Any]:
        """Return all that goes into a step's key; an input that is not built yet is None."""
        inputs: dict[str, str | None] = {}
        for argument, producer in self.plan.producers(step):
            if producer is None:
                inputs[argument] = self._digest_of_files(step, argument)
            else:
                manifest = self.current(producer)
                inputs[argument] = manifest.output if manifest else None
        found: dict[str, Any] = {
            "code": keys.code_at_start(step.stage.entry.partition(":")[0]),
            "tools": {name: keys.tool_version(name) for name in step.stage.tools},
            "inputs": inputs,
        }
        found |= step.options
        if step.hardware is not None:
            found["hardware"] = dict(step.hardware)
            found["costs"] = core_costs(step.hardware["core"]).ingredients()
        return found

    def address(self, step: Step) -> Address | None:
        """Return a step's address, or None while something it takes is not built."""
        found = self.ingredients(step)
        if None in found["inputs"].values():
            return None
        return Address(keys.digest(keys.canonical([step.name, found])), found)

    def current(self, step: Step) -> Manifest | None:
        """Return the manifest of a step's artifact, or None; DamagedError if it is broken."""
        if step.name not in self._known:
            address = self.address(step)
            if address is None:
                return None
            manifest = self.store.manifest(step.name, address.key)
            if manifest is None:
                return None
            self._known[step.name] = manifest
        return self._known[step.name]

    def is_current(self, step: Step) -> bool:
        """Whether a step's artifact is there and looks whole."""
        try:
            return self.current(step) is not None
        except DamagedError:
            return False

    def produce(self, step: Step) -> tuple[Manifest, Origin]:
        """Return the manifest of a step's artifact, and where that came from."""
        producers = dict(self.plan.producers(step))
        for producer in producers.values():
            if producer is not None:
                self.produce(producer)
        address = self.address(step)
        assert address is not None, "all inputs were just produced"
        if (found := self._found(step, address)) is not None:
            return found
        memo = self._memo(address)
        value = call(step, self.taken(step), memo)
        check_unedited(step, address.ingredients["code"])
        manifest = self._commit(step, address, value, tuple(sorted(memo.used)))
        self._known[step.name] = manifest
        if remote := shared():
            remote.share(self.store, [*memo.new, manifest])
        return manifest, "built"

    def taken(self, step: Step) -> dict[str, Any]:
        """Return the artifacts that a step's stage takes, by argument, building what is missing."""
        return {
            argument: self.files(step, argument) if producer is None else self.load(producer)
            for argument, producer in self.plan.producers(step)
        }

    def find(self, step: Step) -> tuple[Manifest, Origin] | None:
        """Return the manifest of a step's artifact and whence it is, where it is here or on the
        remote, and all above it too; None if anything must be built."""
        for _, producer in self.plan.producers(step):
            if producer is not None and self.find(producer) is None:
                return None
        address = self.address(step)
        return None if address is None else self._found(step, address)

    def _found(self, step: Step, address: Address) -> tuple[Manifest, Origin] | None:
        """Return the manifest of a step's artifact and whence it is, without building it."""
        if (manifest := self._sound(step, address.key)) is not None:
            return manifest, "cached"
        if (fetched := self._fetch(step, address)) is not None:
            return fetched, "fetched"
        return None

    def _fetch(self, step: Step, address: Address) -> Manifest | None:
        """Return the manifest of a step's artifact, brought from the remote if it is there."""
        remote = shared()
        if remote is None:
            return None
        manifest = remote.fetch(self.store, step.name, address.key, step.stage.gives)
        if manifest is None:
            return None
        roots.note(self.store, self.plan.recipe, {step.name: address.key})
        self._known[step.name] = manifest
        return manifest

    def memo(self, step: Step) -> Memo:
        """Return the items of a step, whose inputs are in the store."""
        address = self.address(step)
        assert address is not None, f"{step.name} lacks an input"
        return self._memo(address)

    def _memo(self, address: Address) -> Memo:
        code = keys.digest(keys.canonical(address.ingredients["code"]))
        tools = address.ingredients["tools"]
        return Memo(self.store, code, tools, build_progress.detail, shared())

    def load(self, step: Step) -> Any:
        """Return a step's artifact as the stage gave it, building what is missing or damaged."""
        from stages import artifacts

        manifest, parts = self._read(step, self.store.read)
        whole = artifacts.SerializedArtifact(dict(parts.files), dict(parts.tensors))
        return artifacts.put_together(manifest.kind, whole)

    def content(self, step: Step) -> dict[str, Path]:
        """Return where the files of a step's artifact lie, building what is missing or damaged."""
        return self._read(step, self.store.files)[1]

    def _read(self, step: Step, read: Callable[[Manifest], Read]) -> tuple[Manifest, Read]:
        """Return a step's manifest and what is read by it, building what is missing or damaged."""
        for _ in range(_ATTEMPTS):
            manifest, _built = self.produce(step)
            try:
                return manifest, read(manifest)
            except DamagedError as damage:
                self._drop(step, manifest.key, damage)
        folder = self.store.folder(step.name, manifest.key)
        raise UserError(
            f"{shown(folder)}: was written {_ATTEMPTS} times and never read back as it was; "
            "look at the disk, or keep the artifacts on another"
        )

    def _sound(self, step: Step, key: str) -> Manifest | None:
        """Return the manifest of a step's artifact; if it is broken, warn and drop it."""
        try:
            return self.current(step)
        except DamagedError as damage:
            self._drop(step, key, damage)
            return None

    def _drop(self, step: Step, key: str, damage: DamagedError) -> None:
        print(f"warning: artifact {damage}; building it again", file=sys.stderr)
        self.store.discard(step.name, key)
        self._known.clear()

    def _commit(self, step: Step, address: Address, value: Any, items: tuple[str, ...]) -> Manifest:
        from stages import artifacts

        parts = artifacts.take_apart(step.stage.gives, value)
        with self.store.lock():
            manifest = self.store.commit(
                step.name,
                address.key,
                step.stage.gives,
                Parts(parts.files, parts.tensors, parts.held),
                address.ingredients,
                items,
            )
        roots.note(self.store, self.plan.recipe, {step.name: address.key})
        return manifest

    def _digest_of_files(self, step: Step, argument: str) -> str:
        taken = step.stage.takes[argument]
        if taken == CALIBRATION:
            assert self.plan.calibration is not None
            return self.plan.calibration.digest()
        if taken == MEASUREMENTS:
            return keys.digest(keys.canonical(self._choices))
        return self._source_digest()

    def files(self, step: Step, argument: str) -> Any:
        """Return an input that no step gives."""
        taken = step.stage.takes[argument]
        if taken == CALIBRATION:
            return self.calibration_samples()
        if taken == MEASUREMENTS:
            return self._choices
        return self._source()

    @functools.cached_property
    def _choices(self) -> dict[str, Any]:
        """What was measured, once and for all: another process may be measuring on."""
        return self.plan.measured_choices.choices()

    def calibration_samples(self, most: int | None = None) -> Any:
        """Return the calibration samples as the imported model's inputs, or some of them."""
        from pipelines.runners.package import Tensor
        from stages import importing
        from stages.kinds import Golden

        assert self.plan.calibration is not None
        shapes, _ = importing.signature(self.load(self.plan.step(IMPORTING)))
        tensors = [Tensor(name, "float32", shape, None) for name, shape in shapes.items()]
        return Golden(inputs=self.plan.calibration.of(most).read(tensors), outputs={})

    def _source(self) -> bytes:
        assert self.plan.source is not None
        return model_files.read(self.plan.source)

    def _source_digest(self) -> str:
        assert self.plan.source is not None
        parts = model_files.parts(self.plan.source)
        marks = ((part, part.stat()) for part in parts)
        return _source_output(tuple((p, stat.st_mtime_ns, stat.st_size) for p, stat in marks))


@functools.cache
def _source_output(parts: tuple[tuple[Path, int, int], ...]) -> str:
    """Return the digest a model's files have as an input: one file's is that of a zoo artifact.

    Times and sizes are only there to notice a change within one run.
    """
    data = [path.read_bytes() for path, _, _ in parts]
    names = ["source.onnx", "params"]
    contents = [Content(n, keys.digest(d), len(d)) for n, d in zip(names, data, strict=False)]
    return output_digest("source", tuple(contents), ())


def shared() -> Remote | None:
    """Return the shared store of this work folder, or None; its modules are imported only where
    one is set."""
    if not work_folder.has_cache_file():
        return None
    from pipelines.caching import remote

    return remote.of_settings()
