"""Parsers that go wrong on one mail, for the children that read mail: Python loads this at its start from PYTHONPATH.

A message with `parser: hangs`, `eats memory`, `segfaults` or `sleeps` in it does that to whoever parses it, whichever way: the
header alone, for the index, or for a person who looks at it. All others are read as always.
"""

import importlib.abc
import importlib.machinery
import os
import signal
import sys
from types import ModuleType

_PATCHED = {
    "archiver.mail.header.fields": "split_block",
}


def _go_wrong(raw: bytes) -> None:
    if b"parser: hangs" in raw:
        while True:
            pass
    if b"parser: eats memory" in raw:
        block = b"x" * (64 << 20)
        kept: list[bytes] = []
        while True:
            kept.append(block + bytes([len(kept) % 256]))
    if b"parser: segfaults" in raw:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGSEGV)
    if b"parser: sleeps" in raw:
        import time

        time.sleep(3600)


class _Loader(importlib.abc.Loader):
    def __init__(self, real: importlib.abc.Loader, name: str) -> None:
        self._real, self._name = real, name

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._real.exec_module(module)
        name = _PATCHED[self._name]
        parse = getattr(module, name)

        def hostile(raw, *given, **named):  # type: ignore[no-untyped-def]
            _go_wrong(raw)
            return parse(raw, *given, **named)

        setattr(module, name, hostile)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path, target=None):  # type: ignore[no-untyped-def]
        if fullname not in _PATCHED:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _Loader(spec.loader, fullname)
                return spec
        return None


sys.meta_path.insert(0, _Finder())
