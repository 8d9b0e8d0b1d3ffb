"""A board behind a real sshd: one of this test's own, on loopback, that lets this user in.

It has its port, configuration, host key and authorized keys in a temporary folder, and so has the
client: nothing of the user's `~/.ssh` is read or written. Whoever logs in is in a home folder of
the test's. `stop` cuts its connections, and ends what runs behind them.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.remote.board_addresses import Board
from pipelines.remote.transport import Ssh

MARK = "BITKILN_TEST_SSHD"
"""A variable in the environment of everything that is started behind it."""
_PLACES = "/usr/sbin:/usr/local/sbin:/sbin"
_SFTP = ("/usr/lib/openssh", "/usr/libexec/openssh", "/usr/lib/ssh", "/usr/libexec", "/usr/lib")
_SECONDS = 10.0
# It ends when its input does: also when whoever started it is killed.
_GUARD = '"$@" & sshd=$!; read -r _; kill -9 $sshd; wait'


def lacking() -> str:
    """Why there can be no sshd here, or nothing."""
    absent = [name for name in ("ssh", "scp", "ssh-keygen") if shutil.which(name) is None]
    absent += [] if _sshd() else ["sshd"]
    return f"{', '.join(absent)} not installed" if absent else ""


def _sshd() -> str | None:
    return shutil.which("sshd", path=f"{_PLACES}:{os.environ.get('PATH', '')}")


class Sshd:
    """A server and how to reach it; `home` is the folder in which programs start."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir(parents=True)
        self.config, self.known_hosts = folder / "client_config", folder / "known_hosts"
        self.noise = folder / "noise"
        """What a start-up file prints, if there is this file."""
        self.port = _free_port()
        self._guard: subprocess.Popen[bytes] | None = None
        for name in ("host", "user"):
            self.make_key(name)
        shutil.copy(folder / "user.pub", folder / "authorized_keys")
        self.trust("host")
        self.write_config("user")
        self._write_server()

    def make_key(self, name: str) -> None:
        """Write a key pair: NAME and NAME.pub."""
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)

    def trust(self, name: str) -> None:
        """Let the client know the key NAME as the server's."""
        key = " ".join((self.folder / f"{name}.pub").read_text().split()[:2])
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {key}\n")

    def write_config(self, key: str, more: str = "") -> None:
        """Write the client's configuration, with the name of the key that it offers."""
        self.config.write_text(
            f"Host *\nIdentityFile {self.folder / key}\nIdentitiesOnly yes\nIdentityAgent none\n"
            f"UserKnownHostsFile {self.known_hosts}\nGlobalKnownHostsFile /dev/null\n{more}\n"
        )

    def board(self, name: str = "pi", user: str | None = None, kind: str | None = None) -> Board:
        """The server as a board."""
        address = f"{user or getpass.getuser()}@127.0.0.1:{self.port}"
        return Board(name=name, address=address, kind=kind, ssh_config=str(self.config))

    def transport(self, name: str = "pi", user: str | None = None) -> Ssh:
        """How the server is reached."""
        return Ssh(self.board(name, user))

    def boards_file(self, *boards: Board) -> Path:
        """A file for BITKILN_BOARDS."""
        path = self.folder / "boards.yaml"
        lines = []
        for board in boards:
            stated = board.model_dump(exclude_defaults=True)
            lines += [f"- {{{', '.join(f'{key}: {str(v)!r}' for key, v in stated.items())}}}"]
        path.write_text("\n".join(["boards:", *lines, ""]))
        return path

    def _write_server(self) -> None:
        sftp = next((p for f in _SFTP if (p := Path(f, "sftp-server")).is_file()), Path("none"))
        quoted = {name: shlex.quote(str(getattr(self, name))) for name in ("home", "noise")}
        command = self.folder / "command"
        command.write_text(
            f"#!/bin/sh\ncd {quoted['home']} || exit 1\nHOME={quoted['home']}\n"
            f"{MARK}={shlex.quote(str(self.folder))}\nexport HOME {MARK}\n"
            f"[ ! -r {quoted['noise']} ] || cat {quoted['noise']}\n"
            'exec sh -c "$SSH_ORIGINAL_COMMAND"\n'
        )
        command.chmod(0o755)
        (self.folder / "server_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.folder / 'host'}\n"
            f"AuthorizedKeysFile {self.folder / 'authorized_keys'}\nPidFile none\nUsePAM no\n"
            "StrictModes no\nPasswordAuthentication no\nPermitRootLogin yes\nUseDNS no\n"
            "MaxStartups 100\nMaxSessions 100\n"
            f"Subsystem sftp {sftp}\nForceCommand {command}\n"
        )

    def start(self) -> None:
        """Start the server, and wait until it answers; it may have been stopped before."""
        for _ in range(2):
            with (self.folder / "log").open("wb") as log:
                config = str(self.folder / "server_config")
                server = [_sshd() or "sshd", "-D", "-e", "-f", config]
                self._guard = subprocess.Popen(
                    ["sh", "-c", _GUARD, "sh", *server],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            if self._answers():
                return
            said = (self.folder / "log").read_text(errors="replace")
            self.stop()
            # Debian's service makes it, and there need not be that service where there is sshd.
            folder = said.partition("Missing privilege separation directory: ")[2].split("\n")[0]
            if not folder.startswith("/run/"):
                break
            Path(folder).mkdir(mode=0o755, exist_ok=True)
        pytest.fail(f"sshd did not start: {said}")

    def _answers(self) -> bool:
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end:
            if "fatal" in (said := (self.folder / "log").read_text(errors="replace")):
                return False
            if "Missing privilege" in said or "Cannot bind" in said:
                return False
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port), timeout=1) as call,
            ):
                if call.recv(4) == b"SSH-":
                    return True
            time.sleep(0.02)
        return False

    def stop(self) -> None:
        """End the server, its connections and what runs behind them."""
        guard, self._guard = self._guard, None
        if guard is None:
            return
        # Servers before what they started, which they would still tell the end of.
        for pid in dict.fromkeys([*_below(guard.pid), *_marked(self.folder)]):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        assert guard.stdin is not None
        guard.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            guard.wait(timeout=_SECONDS)
        with contextlib.suppress(OSError):
            os.killpg(guard.pid, signal.SIGKILL)
        guard.wait()


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def _below(pid: int) -> Iterator[int]:
    """The processes that a process started, and behind each those that it did."""
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield int(child)
            yield from _below(int(child))


def _marked(folder: Path) -> Iterator[int]:
    """What runs behind a server of a folder, also without the one that started it."""
    mark = f"{MARK}={folder}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (process / "environ").read_bytes().split(b"\0"):
                yield int(process.name)


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Sshd]:
    """Give a server that is running, and end it whatever happens."""
    server = Sshd(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    """A board behind a real sshd; skips where there is none."""
    if reason := lacking():
        pytest.skip(reason)
    with serving(tmp_path / "sshd") as server:
        yield server
