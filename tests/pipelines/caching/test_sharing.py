"""Two clones and a remote between them, driven as a user would: what one built the other has."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fsspec", reason="no fsspec: no remote can be reached")
pytest.importorskip("cryptography", reason="no cryptography: nothing can be signed")

from tests.pipelines.caching.stores import new_key, share
from tests.pipelines.fake_clone import Clone

STAGES = ("zoo", "importing", "golden", "legalizing", "packaging")


@pytest.fixture
def other(tmp_path: Path) -> Clone:
    return Clone(tmp_path / "other")


@pytest.fixture
def shared(clone: Clone, tmp_path: Path) -> tuple[Path, str]:
    """A remote that a clone has built into, and the public key that it signed with."""
    key, public = new_key(tmp_path)
    share(clone, f"remote: file://{tmp_path / 'remote'}\nsign: {key}\n")
    out, err = clone.doit("build", "recipe=toy")
    assert "fetched" not in out and err == ""
    return tmp_path / "remote", public


def statuses(out: str) -> dict[str, str]:
    lines = (line.split() for line in out.split("\n\n")[0].splitlines())
    return {words[0]: words[1] for words in lines}


def test_a_second_clone_rebuilds_nothing(
    clone: Clone, other: Clone, shared: tuple[Path, str]
) -> None:
    folder, public = shared
    share(other, f"remote: file://{folder}\ntrust: [{public}]\n")
    out, err = other.doit("build", "recipe=toy")
    assert other.runs() == {} and err == ""
    assert statuses(out) == {
        **dict.fromkeys(STAGES, "fetched"),
        "publishing": "written",
        "verifying": "built",
    }
    assert other.package() == clone.package()
    assert "cached" in statuses(other.doit("build", "recipe=toy")[0])["packaging"]
    # Of another recipe it has what is alike: two of three layers' kernels, of which it has none.
    again = other.counted("build", "recipe=toy", "layers=[{match: conv3, weights: {bits: 2}}]")
    assert again["item:conv3"] == 1 and "item:conv2" not in again
    # A reader writes nothing, and says why where it is told to.
    _, err = other.doit("cache", "push", expect=3)
    assert "nothing can be pushed there: `write` is false, or there is no key to `sign`" in err


def test_stats_verify_and_pull(
    clone: Clone, other: Clone, shared: tuple[Path, str], tmp_path: Path
) -> None:
    folder, public = shared
    share(other, f"remote: file://{folder}\ntrust: [{public}]\n")
    out, _ = other.doit("cache", "pull", "recipe=toy")
    assert out == "pulled 8; 0 were there, 0 are not\n"
    assert other.runs() == {}
    table = tmp_path / "stats.json"
    out, _ = other.doit("cache", "stats", f"json={table}")
    found = {row["what"]: row["count"] for row in json.loads(table.read_text())}
    # With what a build found out of the source.
    on_remote = sum(path.is_file() for path in (folder / "entries").rglob("*"))
    assert found["artifacts here"] == len(STAGES) and found["items here"] == 3
    assert found["entries on the remote"] == on_remote == 8 + 1
    assert found["last run: fetched"] == 8
    out, _ = other.doit("cache", "verify")
    assert "here    8      0" in out and "remote  9      0" in out
    next((folder / "entries" / "packaging").rglob("*/*")).write_text("rubbish")
    out, err = other.doit("cache", "verify", expect=1)
    assert ": it is no entry" in out and "1 results are not what was written" in err
    out, _ = clone.doit("cache", "push")
    assert "pushed 0 of 9 results; 9 were there" in out
    shutil.rmtree(folder)
    out, _ = clone.doit("cache", "push", "recipe=toy")
    assert "pushed 9 of 9 results; 0 were there" in out
    out, _ = clone.doit("cache", "gc")
    assert "here: removed 0 results" in out and "remote: removed 0 entries" in out


def test_what_a_stranger_signed_is_built_instead(
    other: Clone, shared: tuple[Path, str], tmp_path: Path
) -> None:
    folder, _public = shared
    _key, stranger = new_key(tmp_path, "stranger.key")
    share(other, f"remote: file://{folder}\ntrust: [{stranger}]\n")
    _, err = other.doit("build", "recipe=toy")
    assert other.runs()["packaging"] == 1
    lines = err.splitlines()
    assert all("whom `trust` does not name" in line for line in lines)
    assert all(line.startswith("warning: cache: ") for line in lines) and lines
    share(other, f"remote: file://{folder}\ntrust: unsigned\n")
    shutil.rmtree(other.root / "artifacts")
    assert other.counted("build", "recipe=toy") == {}


class Server(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and says nothing."""

    wait = 0.0

    def do_HEAD(self) -> None:
        time.sleep(self.wait)
        super().do_HEAD()

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@contextlib.contextmanager
def served(folder: Path, handler: type[Server] = Server) -> Iterator[str]:
    made = functools.partial(handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), made) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_over_http_it_is_read_and_when_it_is_gone_builds_go_on(
    other: Clone, shared: tuple[Path, str]
) -> None:
    pytest.importorskip("aiohttp", reason="no aiohttp: http is not read")
    folder, public = shared

    class Slow(Server):
        wait = 1.0

    with served(folder) as url:
        share(other, f"remote: {url}/\ntrust: [{public}]\n")
        assert other.counted("build", "recipe=toy") == {}
        assert f"ok        {url}/: read, trusts 1 keys" in other.doit("doctor")[0]
        _, err = other.doit("cache", "push", expect=3)
        assert err.endswith("nothing can be pushed there: http is only read\n")
    shutil.rmtree(other.root / "artifacts")
    _, gone = other.doit("build", "recipe=toy")
    assert other.runs()["packaging"] == 1
    shutil.rmtree(other.root / "artifacts")
    with served(folder, Slow) as url:
        share(other, f"remote: {url}\ntrust: [{public}]\ntimeout: 0.2\n")
        _, slow = other.doit("build", "recipe=toy")
        assert "no answer in 0.2 s" in slow
    assert other.runs()["packaging"] == 2
    for err in (gone, slow):
        assert err.startswith("warning: cache: ") and err.count("\n") == 1
        assert "is left alone from here on" in err


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[str]:
    """The address of a server of S3, in a process of its own, with a bucket."""
    pytest.importorskip("s3fs", reason="no s3fs: s3:// is not read")
    pytest.importorskip("moto.server", reason="no moto: there is no server of S3 to test with")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-p", str(port)]
    with (tmp_path / "moto.log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        bucket = urllib.request.Request(f"{url}/bucket", method="PUT")
        for _ in range(200):
            with contextlib.suppress(OSError), urllib.request.urlopen(bucket, timeout=5):
                break
            time.sleep(0.1)
        yield url
    finally:
        server.kill()
        server.wait()


def test_over_s3_a_second_clone_rebuilds_nothing(
    clone: Clone, other: Clone, s3: str, tmp_path: Path
) -> None:
    key, public = new_key(tmp_path)
    storage = f"storage: {{endpoint_url: '{s3}', key: someone, secret: 'hidden words'}}"
    share(clone, f"remote: s3://bucket/networks\nsign: {key}\n{storage}\n")
    share(other, f"remote: s3://bucket/networks\ntrust: [{public}]\n{storage}\n")
    _, err = clone.doit("build", "recipe=toy")
    assert err == ""
    out, err = other.doit("build", "recipe=toy")
    assert other.runs() == {} and err == ""
    assert other.package() == clone.package()
    out, _ = clone.doit("cache", "verify")
    assert "remote  9      0" in out
    out, _ = clone.doit("cache", "gc")
    assert "remote: removed 0 entries and 0 contents" in out


def test_secrets_are_not_printed(clone: Clone, tmp_path: Path) -> None:
    pytest.importorskip("s3fs", reason="no s3fs: s3:// is not read")
    key, _public = new_key(tmp_path)
    storage = "storage: {endpoint_url: 'http://127.0.0.1:9', key: someone, secret: 'hidden words'}"
    share(clone, f"remote: s3://bucket/networks\nsign: {key}\ntimeout: 5\n{storage}\n")
    out, err = clone.doit("build", "recipe=toy")
    assert err.count("\n") == 1 and "s3://bucket/networks is left alone from here on" in err
    share(clone, "remote: http://someone:hidden@127.0.0.1:9/\ntrust: [" + "0" * 64 + "]\n")
    said, failed = clone.doit("cache", "pull", "recipe=toy", expect=3)
    assert "hidden" not in out + err + said + failed and "someone" not in err + failed


def test_nothing_is_imported_where_no_remote_is_set(clone: Clone) -> None:
    clone.doit("build", "recipe=toy")
    code = """
import runpy, sys
sys.argv = ["doit", *sys.argv[1:]]
try:
    runpy.run_module("doit", run_name="__main__")
except SystemExit:
    pass
found = {"fsspec", "s3fs", "aiohttp", "cryptography", "pipelines.caching"} & sys.modules.keys()
print(sorted(found), file=sys.stderr)
"""
    variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "BITKILN_CACHE")}
    done = subprocess.run(
        [sys.executable, "-c", code, "build", "recipe=toy"],
        cwd=clone.root, env={**variables, "FAKE_LOG": str(clone.log)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "cached" in done.stdout and done.stderr == "[]\n"
