"""Reading members of an untrusted ZIP archive: nothing is extracted, sizes are checked first."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Collection

from stages.errors import StageError
from stages.importing.limits import MAX_FILE_BYTES

MXNET_SYMBOL = "symbol.json"
"""The member by which archives of MXNet models are known."""
_LOCAL = struct.Struct("<4s22xHH")
"""What stands in front of a member: magic, lengths of its name and of what follows the name."""
MAX_MEMBERS = 100_000
MAX_INFLATION = 1100
"""DEFLATE cannot expand a byte to more than 1032; a member that claims more lies."""


def is_zip(source: bytes) -> bool:
    """Whether a file begins as ZIP archives do."""
    return source[:4] == b"PK\x03\x04"


def member_names(source: bytes) -> tuple[str, ...]:
    """Names of a ZIP archive's members; none if it is no archive at all."""
    try:
        return tuple(_open(source).names)
    except StageError:
        return ()


class Archive:
    """The members of a ZIP archive, read one at a time and at most `MAX_FILE_BYTES` in all."""

    def __init__(self, source: bytes, what: str) -> None:
        """Raise StageError, which calls the file `what`, unless its directory is sound."""
        self.what = what
        self._source = memoryview(source)
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(source))
            members = self._zip.infolist()
        except (zipfile.BadZipFile, ValueError, EOFError, OSError, NotImplementedError) as error:
            raise self.damaged(f"its ZIP directory cannot be read ({error})") from error
        if len(members) > MAX_MEMBERS:
            raise self.damaged(f"it has {len(members):,} members; {MAX_MEMBERS:,} are accepted")
        self._members = {member.filename: member for member in members}
        if len(self._members) != len(members):
            raise self.damaged("two of its members have the same name")
        for name, member in self._members.items():
            if member.file_size > max(member.compress_size, 1) * MAX_INFLATION:
                raise self.damaged(f"member '{name}' claims {member.file_size:,} bytes")
        if sum(member.file_size for member in members) > MAX_FILE_BYTES:
            raise self.damaged(f"its members hold more than {MAX_FILE_BYTES:,} bytes")

    def damaged(self, why: str) -> StageError:
        """The error for an archive that breaks its format's rules."""
        return StageError(f"this is no valid {self.what}: {why}")

    @property
    def names(self) -> Collection[str]:
        """Every member's name."""
        return self._members.keys()

    def read(self, name: str) -> bytes:
        """A member's bytes; StageError for one that is missing, encrypted or damaged."""
        return bytes(self.view(name))

    def view(self, name: str) -> memoryview:
        """A member's bytes, those of the file itself where they are stored as they are."""
        if name not in self._members:
            raise self.damaged(f"it has no member '{name}'")
        member = self._members[name]
        if member.flag_bits & 1:
            raise self.damaged(f"member '{name}' is encrypted")
        if member.compress_type == zipfile.ZIP_STORED:
            return self._stored(member)
        try:
            with self._zip.open(member) as stream:
                data = stream.read(member.file_size + 1)
        except (
            zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError,
            ValueError,
        ) as error:  # fmt: skip
            raise self.damaged(f"member '{name}' cannot be read ({error})") from error
        if len(data) != member.file_size:
            raise self.damaged(f"member '{name}' has not the size that its directory states")
        return memoryview(data)

    def _stored(self, member: zipfile.ZipInfo) -> memoryview:
        at = member.header_offset
        header = self._source[at : at + _LOCAL.size]
        if at < 0 or len(header) != _LOCAL.size:
            raise self.damaged(f"member '{member.filename}' lies beyond the file's end")
        magic, name_length, extra_length = _LOCAL.unpack(header)
        start = at + _LOCAL.size + name_length + extra_length
        data = self._source[start : start + member.file_size]
        if magic != b"PK\3\4" or len(data) != member.file_size:
            raise self.damaged(f"member '{member.filename}' is not where its directory says")
        if member.compress_size != member.file_size or zlib.crc32(data) != member.CRC:
            raise self.damaged(f"member '{member.filename}' has not the contents it was saved with")
        return data


def _open(source: bytes) -> Archive:
    return Archive(source, "ZIP archive")
