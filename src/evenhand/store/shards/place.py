"""Where a folder of shards lies: this machine, or any filesystem that Arrow knows."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.core.errors import InputError
from evenhand.io.files.arrow import pyarrow

# A scheme of one letter is a drive. A Path has made one slash of two.
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{1,3}(?=[^/])")


def looks_like_uri(where: str | Path) -> bool:
    """Whether a name is that of another filesystem, also where it has been through a Path.

    >>> looks_like_uri("s3://bucket/run"), looks_like_uri(Path("s3://bucket/run")), looks_like_uri("runs/a")
    (True, True, False)
    """
    return _URI.match(str(where)) is not None


@dataclass(frozen=True)
class Place:
    """A folder on a filesystem of Arrow.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = Place.of(folder)
    ...     place.write("judge.json", b"{}")
    ...     place.read("judge.json"), place.names("judge"), place.names("part-")
    (b'{}', ['judge.json'], [])
    """

    fs: Any  # a pyarrow.fs.FileSystem
    path: str  # as that filesystem writes it
    name: str  # as the user wrote it

    @classmethod
    def of(cls, where: str | Path | Place) -> Place:
        """A path of this machine, or an address such as s3://bucket/folder."""
        if isinstance(where, Place):
            return where
        arrow = pyarrow()
        import pyarrow.fs as filesystems

        name = str(where)
        if not looks_like_uri(name):
            return cls(filesystems.LocalFileSystem(), Path(name).absolute().as_posix(), name)
        found = _URI.match(name)
        address = _URI.sub(r"\1:///" if found and found[1] == "file" else r"\1://", name, count=1)
        try:
            fs, path = filesystems.FileSystem.from_uri(address)
        except (arrow.ArrowException, OSError, ValueError) as fault:
            said = str(fault).splitlines()[0]
            hint = (
                "an address that Arrow knows, such as s3://bucket/folder, gs://bucket/folder or hdfs://host/folder"
            )
            raise InputError(f"{address} cannot be opened: {said}", hint=hint) from None
        return cls(fs, path.rstrip("/"), address)

    def file(self, name: str) -> str:
        """The path of a file in the folder."""
        return f"{self.path}/{name}"

    def shown(self, name: str) -> str:
        """The name of a file in the folder, for people."""
        return f"{self.name.rstrip('/')}/{name}"

    def below(self, name: str) -> Place:
        """A folder in the folder."""
        return Place(self.fs, self.file(name), self.shown(name))

    def folders(self) -> list[Place]:
        """The folders in it, in the order of their names."""
        import pyarrow.fs as filesystems

        with self._faults():
            found = self.fs.get_file_info(filesystems.FileSelector(self.path, allow_not_found=True))
        return [self.below(name) for name in sorted(i.base_name for i in found if i.type.name == "Directory")]

    def remove(self, name: str) -> None:
        """Delete a file of the folder."""
        with self._faults():
            self.fs.delete_file(self.file(name))

    def exists(self) -> bool:
        """Whether there is such a folder."""
        return bool(self._type(self.path).name == "Directory")

    def has(self, name: str) -> bool:
        """Whether there is such a file in it."""
        return bool(self._type(self.file(name)).name == "File")

    def _type(self, path: str) -> Any:
        with self._faults():
            return self.fs.get_file_info(path).type

    def names(self, prefix: str, suffix: str = "") -> list[str]:
        """The files that are whole and begin and end so, in the order of their names."""
        import pyarrow.fs as filesystems

        with self._faults():
            found = self.fs.get_file_info(filesystems.FileSelector(self.path, allow_not_found=True))
        names = (_name(info) for info in found if info.type.name == "File")
        return sorted(name for name in names if name.startswith(prefix) and name.endswith(suffix))

    def read(self, name: str) -> bytes:
        """All of a file."""
        with self._faults(), self.fs.open_input_file(self.file(name)) as file:
            return bytes(file.read())

    def write(self, name: str, content: bytes) -> None:
        """A file, whole or not at all."""
        with self.writing(name) as file:
            file.write(content)

    @contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        """A file that has its name when it is whole; a writer that dies leaves one that nobody reads."""
        beside = self.file(f".{name}.{uuid.uuid4().hex[:12]}")
        with self._faults():
            self.fs.create_dir(self.path, recursive=True)
            try:
                with self.fs.open_output_stream(beside) as file:
                    yield file
                self.fs.move(beside, self.file(name))
            except BaseException:
                with suppress(Exception):
                    self.fs.delete_file(beside)
                raise

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            said = str(fault).splitlines()[0]
            hint = "is the name right, and may you read and write there?"
            raise InputError(f"{self.name} cannot be used: {said}", hint=hint) from fault


def _name(info: Any) -> str:
    """A file's name; empty where it is no text, as none of ours is."""
    try:
        return str(info.base_name)
    except UnicodeDecodeError:
        return ""
