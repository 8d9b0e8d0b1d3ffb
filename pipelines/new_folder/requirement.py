"""The line by which pip installs the very bitkiln that runs here, for a requirements.txt."""

from __future__ import annotations

import contextlib
import json
import re
from importlib import metadata
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from pipelines import git, work_folder

NAME = "bitkiln[emulator]"
UNKNOWN = f"# {NAME} @ git+https://HOST/PATH@COMMIT"
"""What stands there where nobody knows where bitkiln came from."""
_SCP = re.compile(r"(?P<host>(?:[\w.-]+@)?[\w.-]+):(?P<path>(?!//).+)")


def line(code: Path = work_folder.CODE) -> tuple[str, list[str]]:
    """Return the line, and sentences on what may keep it from working elsewhere."""
    commit = git.commit_of(code)
    if not commit:
        return _installed()
    doubts = []
    if git.is_changed(code):
        doubts.append(f"{code} has changes that its commit {commit[:7]} lacks")
    remote = git.said(code, "config", "--get", "remote.origin.url")
    if not remote:
        doubts.append(f"{code} has no remote, so requirements.txt works on this machine only")
    elif not git.said(code, "branch", "--remotes", "--contains", commit):
        doubts.append(
            f"commit {commit[:7]} is not known to be at {without_credentials(remote, code)} yet"
        )
    return f"{NAME} @ git+{without_credentials(remote or str(code), code)}@{commit}", doubts


def without_credentials(remote: str, code: Path) -> str:
    """Return a remote as a URL without a password or token; a path becomes one of a file."""
    url = urlsplit(remote)
    if url.scheme in ("http", "https"):
        return _without_login(url, "")
    if url.scheme == "file":
        return _file(remote)
    if url.scheme:
        return _without_login(url, url.username or "")
    if found := _SCP.fullmatch(remote):
        return f"ssh://{found['host']}/{found['path'].lstrip('/')}"
    return _file((code / remote).resolve().as_uri())


def _file(url: str) -> str:
    """Name the host: without one a URL of a file is none to requirements (PEP 508)."""
    return re.sub("^file:///", "file://localhost/", url)


def _without_login(url: SplitResult, user: str) -> str:
    host = url.netloc.rpartition("@")[2]
    return url._replace(netloc=f"{user}@{host}" if user else host, query="", fragment="").geturl()


def _installed() -> tuple[str, list[str]]:
    """The same of a bitkiln that pip took from git (PEP 610)."""
    with contextlib.suppress(metadata.PackageNotFoundError, TypeError, ValueError, KeyError):
        found = json.loads(metadata.distribution("bitkiln").read_text("direct_url.json") or "")
        commit = found["vcs_info"]["commit_id"]
        return f"{NAME} @ git+{without_credentials(found['url'], work_folder.CODE)}@{commit}", []
    return UNKNOWN, ["nothing says where this bitkiln came from; state it in requirements.txt"]
