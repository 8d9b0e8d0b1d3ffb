"""One file of an MXNet model: its symbol and, where it comes with weights, its parameters.

MXNet writes a model as two files, `NAME-symbol.json` and `NAME-EPOCH.params`. A stage reads one,
so both travel as members of a ZIP archive that stores them as they are and knows no time.
"""

from __future__ import annotations

import io
import zipfile

from stages.importing.archive import MXNET_SYMBOL, Archive, is_zip

PARAMS = "model.params"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def bundle(symbol: bytes, params: bytes | None) -> bytes:
    """The archive of a symbol and its parameters; the same bytes for the same contents."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, data in ((MXNET_SYMBOL, symbol), (PARAMS, params)):
            if data is not None:
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), data)
    return stream.getvalue()


def unbundle(source: bytes) -> tuple[bytes, memoryview | None]:
    """Symbol and parameters; StageError for a damaged archive. A bare symbol is accepted too."""
    if not is_zip(source):
        return source, None
    archive = Archive(source, "archive of an MXNet model")
    return archive.read(MXNET_SYMBOL), archive.view(PARAMS) if PARAMS in archive.names else None
