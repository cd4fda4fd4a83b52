"""All regular expressions of ours, found in the source itself, so that a new one is there without being listed."""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import archiver
import connectors
import workers

_DIRECT = {"search", "match", "fullmatch", "findall", "finditer", "sub", "subn", "split"}
_ANCHORED = {"match", "fullmatch"}


@dataclass(frozen=True, slots=True)
class Found:
    """A pattern, where it is, and how it is used: `match`, `fullmatch`, or `search` for all that walk through a text."""

    name: str
    pattern: "re.Pattern[Any]"
    method: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """A pattern that is put together at run time, in this function."""

    name: str


def all_patterns() -> list[Found | Unknown]:
    return [found for module in _modules() for found in _patterns(module)]


def _modules() -> Iterator[ModuleType]:
    for package in (archiver, connectors, workers):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not info.name.endswith("__main__"):
                yield importlib.import_module(info.name)


def _patterns(module: ModuleType) -> Iterator[Found | Unknown]:
    assert module.__file__ is not None
    source = Path(module.__file__).read_text("utf-8")
    if "re." not in source:
        return
    tree = ast.parse(source)
    uses = _uses(tree)
    for name, call in _calls(tree):
        where = f"{module.__name__}.{name}"
        pattern = _evaluated(call, module)
        if pattern is None:
            yield Unknown(where)
        else:
            yield Found(where, pattern, _method(call, uses.get(name, set())))


def _calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Calls of `re.something`, with the name that it is assigned to or the function that it is in."""
    named: dict[int, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            named |= {id(call): node.targets[0].id for call in ast.walk(node.value) if isinstance(call, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            named |= {id(call): node.name for call in ast.walk(node) if isinstance(call, ast.Call)}
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and _is_re(call.func):
            yield named.get(id(call), f"line {call.lineno}"), call


def _is_re(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "re"
        and function.attr in {"compile", *_DIRECT}
    )


def _uses(tree: ast.Module) -> dict[str, set[str]]:
    """For each name, the methods that are called on it; `?` where it is used in another way."""
    uses: dict[str, set[str]] = {}
    called = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    called |= {id(other) for node in ast.walk(tree) if isinstance(node, ast.Compare) for other in node.comparators}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            uses.setdefault(node.value.id, set()).add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in called:
            uses.setdefault(node.id, set()).add("?")
    return uses


def _method(call: ast.Call, uses: set[str]) -> str:
    assert isinstance(call.func, ast.Attribute)
    methods = uses if call.func.attr == "compile" else {call.func.attr}
    if not methods or methods - _ANCHORED:
        return "search"
    return "match" if "match" in methods else "fullmatch"


def _evaluated(call: ast.Call, module: ModuleType) -> "re.Pattern[Any] | None":
    assert isinstance(call.func, ast.Attribute)
    flags_at = {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(call.func.attr, 2)
    flags = next((word.value for word in call.keywords if word.arg == "flags"), None)
    if flags is None and len(call.args) > flags_at:
        flags = call.args[flags_at]
    try:
        value = _value(call.args[0], module)
        return re.compile(value, _value(flags, module) if flags is not None else 0)
    except NameError:
        return None


def _value(expression: ast.expr, module: ModuleType) -> Any:
    code = compile(ast.Expression(expression), module.__name__, "eval")
    return eval(code, vars(module))
