"""The vocabulary of the audit log: every action is documented in docs/access.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ACTION = re.compile(r"[a-z_]+\.[a-z_]+")


def recorded_actions() -> Iterator[tuple[str, str]]:
    for path in [*(ROOT / "archiver").rglob("*.py"), *(ROOT / "workers").rglob("*.py")]:
        text = path.read_text()
        if "audit.record" not in text:
            continue
        for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
            if ast.unparse(call.func) in ("audit.record", "audit.record_look"):
                yield from ((name, f"{path.name}:{call.lineno}") for name in _names(call.args[2], text))


def _names(action: ast.expr, text: str) -> list[str]:
    """The strings in the argument; for a name, those of its assignments in the same file."""
    if isinstance(action, ast.Name):
        found = [
            node.value
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == action.id for target in node.targets)
        ]
        return [name for value in found for name in _names(value, text)]
    return [node.value for node in ast.walk(action) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_documented() -> None:
    documented = set(re.findall(r"`([a-z_]+\.[a-z_]+)`", (ROOT / "docs" / "access.md").read_text()))
    actions = list(recorded_actions())
    assert len({name for name, _ in actions}) > 40
    assert [one for one in actions if not ACTION.fullmatch(one[0])] == []
    assert [one for one in actions if one[0] not in documented] == []
