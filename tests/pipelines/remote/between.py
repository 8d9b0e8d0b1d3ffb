"""Stands between a runner and who drives it: `between.py MODE COUNT MARK -- COMMAND...`.

What the runner answers goes on line by line. After COUNT lines, MODE says what goes wrong:
`dies` ends both and leaves the file MARK, `babbles` answers what no runner does, `slow` takes a
moment for every line from then on, `hides` gives no more lines while there is the file MARK.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path


def main() -> None:
    mode, count, mark = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    runner = subprocess.Popen(sys.argv[5:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert runner.stdin is not None and runner.stdout is not None

    def feed() -> None:
        assert runner.stdin is not None
        while data := os.read(0, 1 << 16):
            runner.stdin.write(data)
            runner.stdin.flush()
        runner.stdin.close()

    threading.Thread(target=feed, daemon=True).start()
    for number, line in enumerate(runner.stdout):
        if number >= count and mode == "dies":
            mark.touch()
            runner.kill()
            os._exit(1)
        if number >= count and mode == "babbles":
            line = b"\x1b]0;rm -rf /\x07 {[ what?\n"
        if number >= count and mode == "slow":
            time.sleep(0.05)
        while mode == "hides" and number >= count and mark.exists():
            time.sleep(0.02)
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
