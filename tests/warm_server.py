"""The server of `tests/warm.py`: it imports what third parties wrote, and forks for each command.

It is started by its path, so that nothing of the project can be imported here; a child imports the
copy of the project that stands in its folder. A request is a packet of JSON with three descriptors:
standard output, standard error, and a pipe that takes the child's id and then its exit code.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import threading
from typing import Any

MODULES = """
bdb bz2 cloudpickle code concurrent.futures.process concurrent.futures.thread configparser csv
dbm.dumb difflib doctest email.message email.parser fcntl fractions getopt glob gzip hmac
http.client importlib.metadata importlib.resources ipaddress logging.handlers lzma
multiprocessing.connection multiprocessing.context multiprocessing.managers multiprocessing.pool
multiprocessing.popen_fork multiprocessing.popen_spawn_posix multiprocessing.queues
multiprocessing.reduction multiprocessing.shared_memory multiprocessing.synchronize pdb pickle
platform pprint random runpy secrets shutil socketserver sqlite3 statistics subprocess sysconfig
tarfile tempfile textwrap threading tokenize tomllib unittest.mock urllib.request uuid xml.dom
zipfile zoneinfo
doit doit.action doit.api doit.cmd_base doit.cmd_clean doit.cmd_completion doit.cmd_dumpdb
doit.cmd_forget doit.cmd_help doit.cmd_ignore doit.cmd_info doit.cmd_list doit.cmd_resetdep
doit.cmd_run doit.cmd_strace doit.control doit.dependency doit.doit_cmd doit.exceptions doit.globals
doit.loader doit.plugin doit.reporter doit.runner doit.task doit.tools
yaml yaml.cyaml pydantic pydantic.fields pydantic.json_schema pydantic.main pydantic.root_model
pydantic.type_adapter pydantic_core pydantic_core.core_schema
rich rich.cells rich.console rich.control rich.live rich.markup rich.padding rich.pretty
rich.progress rich.segment rich.spinner rich.style rich.table rich.text
numpy numpy.lib numpy.lib.format numpy.lib.stride_tricks numpy.linalg numpy.random numpy.ma
numpy.fft numpy.polynomial numpy.testing
onnx onnx.checker onnx.helper onnx.numpy_helper onnx.reference onnx.shape_inference
onnx.version_converter
ml_dtypes flatbuffers tflite PIL PIL.Image PIL.PngImagePlugin PIL.JpegImagePlugin
tvm tvm.relax tvm.relax.frontend tvm.relax.frontend.onnx tvm.tirx tvm.s_tir tvm.script tvm.topi
tvm.te tvm.target tvm.runtime tvm.ir tvm.support
elftools elftools.elf.elffile unicorn
"""
"""What commands of tests import; what is not installed is left out."""


def main() -> None:
    """Serve; each child returns from that and becomes its command."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    # The folder of this file would make its neighbours top-level modules.
    beyond = sys.path[1:]
    sys.path[:] = beyond
    _import_all()
    # What is there is never collected again: children need not copy its pages for their counts.
    gc.collect()
    gc.freeze()
    request = Serving(requests).forked()
    if request is not None:
        _become(request, beyond)


def _import_all() -> None:
    # As `stages.without_torch` has it: TVM imports PyTorch where that is installed.
    sys.modules["torch"] = None  # type: ignore[assignment]
    for name in MODULES.split():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    del sys.modules["torch"]


class Serving:
    """Forks for each request, and says of each child how it ended."""

    def __init__(self, requests: socket.socket) -> None:
        self.requests = requests
        self.selector = selectors.DefaultSelector()
        self.selector.register(requests, selectors.EVENT_READ)

    def forked(self) -> dict[str, Any] | None:
        """Return a request in the child that is to do it, and None at the end of all requests."""
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is not self.requests:
                    self._bury(key)
                    continue
                data, files, _, _ = socket.recv_fds(self.requests, 1 << 20, 3)
                if not data:
                    return None
                if self._fork(files):
                    return dict(json.loads(data))

    def _fork(self, files: list[int]) -> bool:
        """Fork; whether this is the child, which has its standard streams and nothing else."""
        out, err, status = files
        child = os.fork()
        if child:
            os.close(out)
            os.close(err)
            os.write(status, f"{child}\n".encode())
            handle = os.pidfd_open(child)
            self.selector.register(handle, selectors.EVENT_READ, (child, status))
            return False
        os.dup2(out, 1)
        os.dup2(err, 2)
        for key in list(self.selector.get_map().values()):
            if key.fileobj is not self.requests:
                os.close(key.fd)
                os.close(key.data[1])
        for file in files:
            os.close(file)
        self.requests.close()
        self.selector.close()
        return True

    def _bury(self, key: selectors.SelectorKey) -> None:
        child, status = key.data
        _, how = os.waitpid(child, 0)
        self.selector.unregister(key.fileobj)
        os.close(key.fd)
        # Who asked may be gone.
        with contextlib.suppress(BrokenPipeError):
            os.write(status, f"{os.waitstatus_to_exitcode(how)}\n".encode())
        os.close(status)


def _become(request: dict[str, Any], beyond: list[str]) -> None:
    """Do what `python -m doit` does in that folder, with that environment."""
    import runpy

    os.setsid()
    # As from a terminal, also where the tests run in the background of a script.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    added = [name for name in os.environ.get("PYTHONPATH", "").split(os.pathsep) if name]
    sys.path[:] = [request["folder"], *added, *beyond]
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.pycache_prefix = os.environ.get("PYTHONPYCACHEPREFIX")
    sys.argv[1:] = request["arguments"]
    importlib.invalidate_caches()
    try:
        runpy.run_module("doit", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        _leave(end.code)


def _leave(code: object) -> None:
    """End as the interpreter does, but without taking its modules apart.

    That would write to each page that is shared with the server, only for all to be thrown away.
    """
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    main()
