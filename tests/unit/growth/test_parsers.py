"""No parser of ours takes more than linear time: lines of Python are counted while it reads more and more of what parsers fear.

The functions are found in `archiver.mail` by their signatures, so that a new one is there without being listed. What the engine
of regular expressions does is looked at by `test_regexes`; what `find` and its like do in C, by the whole messages at the end,
which are read in a process that is killed when it uses far more processor time than any machine needs.
"""

import importlib
import inspect
import os
import pkgutil
import resource
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import archiver.mail
from archiver.mail.budget import Budget
from archiver.mail.defects import Defects
from archiver.mail.fields import Block
from connectors.files.detect import FileKind
from connectors.files.unpacking import Unpacking
from tests.unit.growth.feared import UNITS, WHOLE_MESSAGES
from tests.unit.growth.steps import grows_faster

LIMIT = 4.0  # for three times the size
FEW = 400
GIVEN: dict[str, Any] = {"declared": "utf-8", "encoding": "base64", "limit": 10_000, "most": 1 << 20}
# They get text whose bytes outside ASCII are surrogates.
RAW_FIELDS = {f"archiver.mail.{name}" for name in ("addresses", "fields", "headers", "parameters", "words")}
# Not parsers, or given something else than what came by mail.
LEFT_OUT = {"archiver.mail.marks.unmarked", "archiver.mail.parts.scan_parts", "archiver.mail.parts.split_multipart"}


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for info in pkgutil.iter_modules(archiver.mail.__path__, "archiver.mail."):
        module = importlib.import_module(info.name)
        for name, function in vars(module).items():
            is_ours = inspect.isfunction(inspect.unwrap(function)) and getattr(function, "__module__", "") == info.name
            if is_ours and not name.startswith("_") and f"{info.name}.{name}" not in LEFT_OUT and _takes_text(function):
                yield f"{info.name}.{name}", inspect.unwrap(function)


def _takes_text(function: Callable[..., Any]) -> bool:
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is not None and first.annotation in (str, bytes)


def called(function: Callable[..., Any], text: str) -> Callable[[], Any]:
    first, *rest = inspect.signature(function).parameters.values()
    given: Any = text.encode("utf-8", "surrogateescape")
    if first.annotation is str:
        given = given.decode("ascii", "surrogateescape") if function.__module__ in RAW_FIELDS else text
    return lambda: function(given, **{one.name: _argument(one, text) for one in rest if one.default is one.empty})


def _argument(parameter: inspect.Parameter, text: str) -> Any:
    if parameter.annotation is Defects:
        return Defects()
    if parameter.annotation is Budget:
        return Budget.of(len(text))
    if parameter.annotation is Block:
        return Block([], 0)
    if parameter.name == "tags":
        return text.count("<")
    assert parameter.name in GIVEN, f"what is {parameter}? add it to GIVEN"
    return GIVEN[parameter.name]


FUNCTIONS = dict(functions())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_linear(name: str) -> None:
    function = FUNCTIONS[name]
    for start, unit, end in UNITS:

        def work(count: int, start: str = start, unit: str = unit, end: str = end) -> Callable[[], Any]:
            return called(function, start + unit * count + end)

        assert grows_faster(work, FEW) < LIMIT, (start, unit, end)


def test_the_functions_are_found() -> None:
    for name in ("calendar.read_calendar", "addresses.parse_addresses", "message.read_message", "tnef.read_tnef"):
        assert f"archiver.mail.{name}" in FUNCTIONS


def test_the_test_finds_quadratic_ones() -> None:
    def quadratic(text: str) -> int:
        return sum(1 for start in range(len(text)) for _ in range(start))

    assert grows_faster(lambda count: called(quadratic, "a" * count), FEW) > LIMIT


@pytest.mark.parametrize("names", [("a",), ("d", "d/a"), ("d~2", "d", "d/a")])
def test_equal_names_in_an_archive(tmp_path: Path, names: tuple[str, ...]) -> None:
    def work(count: int) -> Callable[[], Any]:
        source = tmp_path / f"{count}.zip"
        with zipfile.ZipFile(source, "w") as archive:
            for number in range(count * len(names)):
                with warnings.catch_warnings(action="ignore"):
                    archive.writestr(zipfile.ZipInfo(names[number % len(names)]), b"x")
        target = tmp_path / str(count)
        target.mkdir()
        return lambda: Unpacking(source, target, lambda _: None).run(FileKind.ZIP)

    assert grows_faster(work, 40) < LIMIT
    assert sum(path.is_file() for path in (tmp_path / "120").rglob("*")) == 120 * len(names)


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
    os.nice(5)


@pytest.mark.parametrize("name", WHOLE_MESSAGES)
def test_whole_messages(name: str, tmp_path: Path) -> None:
    """Megabytes of it. Quadratic work would take hours of processor time; two minutes are far more than linear work takes."""
    path = tmp_path / "hostile.eml"
    path.write_bytes(WHOLE_MESSAGES[name]())
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.reading", str(path)],
        preexec_fn=_limited,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
