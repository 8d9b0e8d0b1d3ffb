"""`doit cache push|pull|verify|gc|stats|keygen`: the local store, and the remote one it shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pipelines import work_folder
from pipelines.builds import plan
from pipelines.builds.plan_execution import STORE, PlanExecution
from pipelines.caching import entry, events, eviction, local_store, settings, upkeep
from pipelines.caching import remote as remotes
from pipelines.caching.remote_files import UnreachableError
from pipelines.commands.arguments import required_path
from pipelines.errors import CheckError, UserError, did_you_mean, nearest, shown
from pipelines.output import printed_tables
from pipelines.recipe.overrides import Variables
from pipelines.store import roots
from pipelines.store.manifest import DamagedError, Manifest


def run(*, variables: Variables, files: Sequence[str]) -> None:
    """Do what the word behind `cache` says; UserError for another word, or without a remote."""
    word = files[0] if len(files) == 1 else ""
    if word not in _WORDS:
        close = did_you_mean(word, list(_WORDS)) if word and nearest(word, _WORDS) else ""
        found = " ".join(files) or "nothing"
        accepted = close or f"; accepted: {', '.join(_WORDS)}"
        raise UserError(f"cache takes one word, found {found}{accepted}")
    allowed = {"push": ("recipe",), "pull": ("recipe",), "keygen": ("out",)}.get(word, ())
    for name in ("recipe", "out"):
        if name in variables.command and name not in allowed:
            raise UserError(f"cache {word} does not heed {name}=; leave it out")
    try:
        rows = _WORDS[word](variables)
    except UnreachableError as error:
        made = settings.load()
        raise UserError(f"{made.shown if made else 'remote'}: cannot be reached: {error}") from None
    printed_tables.write_json(variables.command.get("json"), rows)


def _remote() -> remotes.Remote:
    found = remotes.of_settings()
    if found is None:
        raise UserError(
            f"no shared store is set; write `remote: URL` and `trust: [KEY]` into "
            f"{shown(work_folder.CACHE)}, or name such a file by {settings.VARIABLE}"
        )
    return found


def _push(variables: Variables) -> Any:
    """Write back what a recipe used, or all recipes."""
    remote = _remote()
    if not remote.settings.writes:
        is_web = remote.settings.protocol.startswith("http")
        why = "http is only read" if is_web else "`write` is false, or there is no key to `sign`"
        raise UserError(f"{remote.settings.shown}: nothing can be pushed there: {why}")
    given: dict[tuple[str, str], Manifest] = {}
    for recipe in _recipes(variables):
        for manifest in local_store.of_recipe(STORE, recipe):
            if manifest.stage != plan.VERIFYING:  # what this machine found out
                given[manifest.stage, manifest.key] = manifest
    there = {file.path for file in remote.backend.list(remotes.ENTRIES)}
    lacking = [m for a, m in given.items() if remotes.entry_path(*a) not in there]
    written = remote.share(STORE, lacking)
    print(f"pushed {written} of {len(given)} results; {len(given) - len(lacking)} were there")
    if written < len(lacking):
        raise UserError(
            f"{len(lacking) - written} results were not pushed; the lines above say why"
        )
    return {"pushed": written, "there": len(given) - len(lacking)}


def _pull(variables: Variables) -> Any:
    """Bring what a recipe needs, or what all recipes used."""
    remote = _remote()
    counts = {"pulled": 0, "there": 0, "missing": 0}
    for recipe in _recipes(variables):
        manifests: Iterable[Manifest]
        if variables.recipe is not None:
            manifests = _stages(remote, variables, counts)
        else:
            manifests = _known(remote, recipe, counts)
        for manifest in manifests:
            for item in manifest.items:
                folder, _, key = item.rpartition("/")
                _count(counts, _brought(remote, folder, key, "files"))
    if remote.is_down:
        raise UserError("not all was pulled; the line above says why")
    print(f"pulled {counts['pulled']}; {counts['there']} were there, {counts['missing']} are not")
    return counts


def _stages(
    remote: remotes.Remote, variables: Variables, counts: dict[str, int]
) -> Iterable[Manifest]:
    """Yield the manifests of a recipe's stages, as far as the remote or this store has them.

    A stage's key holds what those before it gave, so the first that is missing ends it.
    """
    from pipelines.recipe import load

    assert variables.recipe is not None
    made = plan.of(load.load_recipe(variables.recipe, variables.fields))
    execution = PlanExecution(made)
    for step in made.steps:
        address = execution.address(step)
        if address is None:
            counts["missing"] += 1
            continue
        found = _brought(remote, step.name, address.key, step.stage.gives)
        _count(counts, found)
        if found is not None:
            roots.note(STORE, made.recipe, {step.name: address.key})
            yield found[0]


def _known(remote: remotes.Remote, recipe: str, counts: dict[str, int]) -> Iterable[Manifest]:
    """Yield the manifests of what a recipe used before, brought where they are missing."""
    from stages import STAGES

    kinds = {stage.name: stage.gives for stage in STAGES}
    for stage, kept in roots.of(STORE, recipe).items():
        for key in kept if stage != plan.VERIFYING else ():
            found = _brought(remote, stage, key, kinds.get(stage, "table"))
            _count(counts, found)
            if found is not None:
                yield found[0]


def _brought(
    remote: remotes.Remote, stage: str, key: str, kind: str
) -> tuple[Manifest, bool] | None:
    """A result's manifest, and whether it had to be brought; None where nobody has it."""
    try:
        manifest = STORE.manifest(stage, key)
    except DamagedError:
        STORE.discard(stage, key)
        manifest = None
    if manifest is not None:
        return manifest, False
    fetched = remote.fetch(STORE, stage, key, kind)
    return None if fetched is None else (fetched, True)


def _count(counts: dict[str, int], found: tuple[Manifest, bool] | None) -> None:
    counts["missing" if found is None else "pulled" if found[1] else "there"] += 1


def _recipes(variables: Variables) -> list[str]:
    """The recipe asked for by its name, or all that used anything of the store."""
    recipe = variables.command.get("recipe")
    if recipe is None:
        return list(roots.recipes(STORE))
    from pipelines.recipe import load

    return [load.load_recipe(recipe, variables.fields).name]


def _verify(variables: Variables) -> Any:
    """Hash all that is here and on the remote."""
    del variables
    sound, damaged = local_store.verify(STORE)
    rows = [_row("here", sound, len(damaged), "removed: built again when needed")]
    remote, bad = remotes.of_settings(), 0
    for name in damaged:
        print(f"{name} is damaged")
    if remote is not None and not remote.settings.protocol.startswith("http"):  # no listing there
        found = upkeep.verify(remote, remove=remote.settings.writes)
        for path, why in found.bad.items():
            print(f"{path}: {why}")
        for path in found.damaged:
            print(f"{path}: is not what its name says")
        bad = len(found.bad) + len(found.damaged)
        what = "removed once an hour old" if remote.settings.writes else "never read"
        rows.append(_row("remote", found.sound, bad, what))
    printed_tables.show("cache: verified", rows, ["where", "sound", "bad", "what_is_bad"])
    if damaged or bad:
        raise CheckError(f"{len(damaged) + bad} results are not what was written")
    return rows


def _row(where: str, sound: int, bad: int, then: str) -> dict[str, Any]:
    return {"where": where, "sound": sound, "bad": bad, "what_is_bad": then if bad else None}


def _gc(variables: Variables) -> Any:
    """Bring both stores within their limit."""
    del variables
    made = settings.load()
    limit = settings.size(made.limit if made else settings.LIMIT) or 0
    before = eviction.total(local_store.results(STORE))
    removed = local_store.collect(STORE, limit)
    left = eviction.total(local_store.results(STORE))
    freed = printed_tables.size(before - left)
    print(f"here: removed {len(removed)} results, {freed}; {printed_tables.size(left)} are left")
    if left > limit:
        print("all that is left is in use by recipes, or was within the hour; `doit clean` forgets")
    result: dict[str, Any] = {"here": {"removed": removed, "bytes": before - left, "left": left}}
    remote = remotes.of_settings()
    if remote is not None and made is not None and remote.settings.writes:
        needed = {
            (manifest.stage, manifest.key)
            for recipe in roots.recipes(STORE)
            for manifest in local_store.of_recipe(STORE, recipe)
        }
        swept = upkeep.collect(remote, limit, needed, made.days)
        told = f"{swept.entries} entries and {swept.contents} contents"
        print(f"remote: removed {told}, {printed_tables.size(swept.bytes)}")
        result["remote"] = vars(swept)
    return result


def _stats(variables: Variables) -> Any:
    """Print how much there is, and what the last run found on the remote."""
    del variables
    found = local_store.results(STORE)
    items = [each for each in found if each.name.startswith("items/")]
    stages = [each for each in found if not each.name.startswith("items/")]
    rows = [
        {"what": "artifacts here", "count": len(stages), "bytes": eviction.total(stages)},
        {"what": "items here", "count": len(items), "bytes": eviction.total(items)},
    ]
    remote = remotes.of_settings()
    if remote is not None and not remote.settings.protocol.startswith("http"):
        for name, (count, held) in upkeep.totals(remote).items():
            rows.append({"what": f"{name} on the remote", "count": count, "bytes": held})
    for what, (count, held) in events.last(STORE).items():
        named = {"hit": "fetched", "miss": "not there"}.get(what, what)
        rows.append({"what": f"last run: {named}", "count": count, "bytes": held})
    printed_tables.show("cache", rows, ["what", "count", "bytes"])
    return rows


def _keygen(variables: Variables) -> Any:
    """Write a private key; print its public one."""
    file = required_path(variables, "out", "doit cache keygen out=cache.key")
    public = entry.keygen(file)
    print(f"written: {shown(file.absolute())}, which nobody else may read; name it by `sign`")
    print(f"public key, for others' `trust`: {public}")
    return {"public": public}


_WORDS: Mapping[str, Callable[[Variables], Any]] = {
    "push": _push,
    "pull": _pull,
    "verify": _verify,
    "gc": _gc,
    "stats": _stats,
    "keygen": _keygen,
}
"""What can stand behind `cache` → what does it."""
