"""What tests of boards share."""

from tests.pipelines.remote.sshd import sshd as sshd
