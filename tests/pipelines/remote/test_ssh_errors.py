"""What ssh says where a board cannot be reached, as one sentence."""

from __future__ import annotations

import pytest

from pipelines.remote import transport
from pipelines.remote.board_addresses import Board
from pipelines.remote.checkup import examine
from tests.pipelines.remote.answers import recorded

CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
Offending ED25519 key in /home/me/.ssh/known_hosts:1
  remove with:
  ssh-keygen -f "/home/me/.ssh/known_hosts" -R "raspberrypi"
Host key for raspberrypi has changed and you have requested strict checking.
Host key verification failed.
"""


@pytest.mark.parametrize(
    ("says", "sentence"),
    [
        ("pi@raspberrypi: Permission denied (publickey,password).\n",
         "pi@raspberrypi is not let in: the board has no such user, or does not know your key; "
         "ssh-copy-id pi@raspberrypi"),
        ("Permission denied (publickey).\n",
         "pi@raspberrypi is not let in: the board has no such user, or does not know your key; "
         "ssh-copy-id pi@raspberrypi"),
        ('Load key "/home/me/.ssh/id": bad permissions\npi@raspberrypi: Permission denied ().\n',
         "ssh does not use your private key, as others may read it; chmod 600 and its path"),
        ("Received disconnect from 10.0.0.9 port 22:2: Too many authentication failures\n",
         "ssh offers more keys than the board looks at; name one in ssh's configuration, by "
         "IdentityFile and IdentitiesOnly yes"),
        ("ssh: Could not resolve hostname raspberrypi: Name or service not known\n",
         "no machine is called 'raspberrypi'; look at its spelling, or write its IP address"),
        ("ssh: connect to host raspberrypi port 22: Connection refused\n",
         "nothing answers ssh on raspberrypi, port 22; switch ssh on there: sudo systemctl enable "
         "--now ssh"),
        ("ssh: connect to host 10.0.0.9 port 22: No route to host\n",
         "raspberrypi does not answer; is it on, and in this network?"),
        ("ssh: connect to host raspberrypi port 22: Connection timed out\n",
         "raspberrypi does not answer; is it on, and in this network?"),
        ("Timeout, server raspberrypi not responding.\nConnection to raspberrypi timed out\n",
         "raspberrypi does not answer; is it on, and in this network?"),
        (CHANGED,
         "its host key is not the one that this machine knows: the board was set up anew, or it "
         "is another machine; if you know why: ssh-keygen -R raspberrypi"),
        ("Host key verification failed.\n",
         "this machine does not know its host key yet; log in once by hand, and compare the key: "
         "ssh pi@raspberrypi"),
        ("No ED25519 host key is known for raspberrypi and you have requested strict checking.\n"
         "Host key verification failed.\n",
         "this machine does not know its host key yet; log in once by hand, and compare the key: "
         "ssh pi@raspberrypi"),
        ("kex_exchange_identification: Connection closed by remote host\n",
         "raspberrypi ends the connection before it says who may come in; look at its log: "
         "journalctl -u ssh"),
        ("/home/me/.ssh/config: line 1: Bad configuration option: bogus\n",
         "ssh does not take its configuration: /home/me/.ssh/config: line 1: Bad configuration "
         "option: bogus; correct that file"),
        ("\n",
         "the board lets pi@raspberrypi in, and runs nothing for it; give that user a shell "
         "there: sudo chsh -s /bin/sh"),
        ("something\x1b[31m odd {host}\n", "cannot be asked: something?[31m odd {host}"),
    ],
)  # fmt: skip
def test_what_is_said_where_ssh_does_not_get_there(says: str, sentence: str) -> None:
    (found,) = examine(recorded(says=says), None)
    assert (found.what, found.state) == ("connection", "fault")
    assert "; ".join(filter(None, [found.found, found.advice])) == sentence


@pytest.mark.parametrize(
    ("address", "command", "known"),
    [
        ("pi@raspberrypi:2222", "ssh -p 2222 pi@raspberrypi", "ssh-keygen -R '[raspberrypi]:2222'"),
        ("raspberrypi", "ssh raspberrypi", "ssh-keygen -R raspberrypi"),
        ("pi@[fe80::1]:22", "ssh -p 22 pi@fe80::1", "ssh-keygen -R '[fe80::1]:22'"),
    ],
)
def test_commands_that_are_named_are_whole(address: str, command: str, known: str) -> None:
    (unknown,) = examine(recorded(says="Host key verification failed.", address=address), None)
    assert unknown.advice.endswith(f": {command}")
    (changed,) = examine(recorded(says=CHANGED, address=address), None)
    assert changed.advice.endswith(f": {known}")


def test_a_machine_without_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    to = transport.transport(Board(name="pi", address="pi@raspberrypi"))
    (found,) = examine(to, None)
    assert found.found == "ssh is not installed; on Debian: apt install openssh-client"
