"""What ssh says where a board cannot be reached, as one sentence and what to do about it.

The words are those of OpenSSH's client, versions 6 to 10 (ssh.c, sshconnect.c, sshconnect2.c).
"""

from __future__ import annotations

import re
import shlex

from pipelines.output.findings import Finding
from pipelines.remote.transport import Ssh, Transport, UnreachableBoardError

CONNECTION = "connection"
_SENTENCES: tuple[tuple[str, str, str], ...] = (
    (
        r"bad permissions|UNPROTECTED PRIVATE KEY",
        "ssh does not use your private key, as others may read it",
        "chmod 600 and its path",
    ),
    (
        r"Too many authentication failures",
        "ssh offers more keys than the board looks at",
        "name one in ssh's configuration, by IdentityFile and IdentitiesOnly yes",
    ),
    (
        r"Permission denied",
        "{who} is not let in: the board has no such user, or does not know your key",
        "ssh-copy-id {target}",
    ),
    (
        r"Could not resolve hostname",
        "no machine is called '{host}'",
        "look at its spelling, or write its IP address",
    ),
    (
        r"Connection refused",
        "nothing answers ssh on {host}, port {port}",
        "switch ssh on there: sudo systemctl enable --now ssh",
    ),
    (
        r"has changed and you have requested|IDENTIFICATION HAS CHANGED",
        "its host key is not the one that this machine knows: the board was set up anew, or it is "
        "another machine",
        "if you know why: ssh-keygen -R {known}",
    ),
    (
        r"Host key verification failed|host key is known for",
        "this machine does not know its host key yet",
        "log in once by hand, and compare the key: ssh {target}",
    ),
    (
        r"timed out|No route to host|Network is unreachable|Host is down|no answer in",
        "{host} does not answer",
        "is it on, and in this network?",
    ),
    (
        r"onnection closed|onnection reset|kex_exchange_identification",
        "{host} ends the connection before it says who may come in",
        "look at its log: journalctl -u ssh",
    ),
    (
        r"[Bb]ad configuration option|Can't open user config file|Bad owner or permissions on",
        "ssh does not take its configuration: {said}",
        "correct that file",
    ),
    (
        r"ended without a word",
        "the board lets {who} in, and runs nothing for it",
        "give that user a shell there: sudo chsh -s /bin/sh",
    ),
)


def refusal(to: Transport, said: str) -> Finding:
    """Return the finding for what ssh said, without control characters, of a board."""
    said = said.removeprefix(f"{to.board.name}: ")
    if not isinstance(to, Ssh):
        return Finding(CONNECTION, "fault", f"cannot be asked: {said}")
    target, port = to.target
    host = target.rpartition("@")[2].strip("[]")
    by_hand = ["-F", to.board.ssh_config] if to.board.ssh_config else []
    by_hand += [*(["-p", port] if port else []), target.replace("[", "").replace("]", "")]
    stated = re.search(r"(\S+@\S+): Permission denied", said)
    at_port = re.search(r" port ([0-9]{1,5})\b", said)
    words = {
        "who": stated[1] if stated else target,
        "target": shlex.join(by_hand),
        "host": host,
        "port": at_port[1] if at_port else port or "22",
        "known": shlex.quote(f"[{host}]:{port}" if port else host),
        "said": said,
    }
    for pattern, found, advice in _SENTENCES:
        if re.search(pattern, said):
            return Finding(CONNECTION, "fault", found.format(**words), advice.format(**words))
    return Finding(CONNECTION, "fault", f"cannot be asked: {said}")


def explained(to: Transport, error: UnreachableBoardError) -> UnreachableBoardError:
    """Return what ssh said as one sentence with what to do about it."""
    found = refusal(to, error.message)
    text = "; ".join(filter(None, [found.found, found.advice]))
    return UnreachableBoardError(f"{to.board.name}: {text}")
