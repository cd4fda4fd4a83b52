"""The rules for migrations (migrations/env.py), held against their text: the release before must survive them."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import migrations

VERSIONS = Path(migrations.__file__).parent / "versions"
BEFORE_THE_RULES = "m0006"
LARGE = {
    "messages", "message_copies", "message_parts", "message_attachments", "attachments", "participants", "objects",
    "thread_links", "unaccounted_keys", "skipped_messages", "mailboxes", "audit_log",
}  # fmt: skip


def _calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Of Alembic's operations, by name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            yield f"{node.func.value.id}.{node.func.attr}", node


def _texts(call: ast.Call) -> list[str]:
    return [node.value for node in ast.walk(call) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def broken_rules(path: Path) -> list[str]:
    found, made = [], {_texts(call)[0] for name, call in _calls(path) if name == "op.create_table"}
    for name, call in _calls(path):
        texts = _texts(call)
        table = next((one for one in texts if one in LARGE - made), None)
        if name.startswith("op.drop_") or (name == "op.execute" and any("DROP " in one.upper() for one in texts)):
            found.append(f"line {call.lineno}: what the release before uses is dropped one release later")
        if name == "op.create_index" and table:
            found.append(f"line {call.lineno}: an index on {table} is built beside its writers, with migrations.indexes.create")
        is_valid_at_once = not any(keyword.arg == "postgresql_not_valid" for keyword in call.keywords)
        if name in ("op.create_check_constraint", "op.create_foreign_key") and table and is_valid_at_once:
            found.append(f"line {call.lineno}: a constraint on {table} is added NOT VALID, and validated then")
    return found


@pytest.mark.parametrize(
    "path", sorted(path for path in VERSIONS.glob("m*.py") if path.name[:5] > BEFORE_THE_RULES), ids=lambda path: path.name
)
def test_a_migration_only_adds_and_locks_no_large_table_for_long(path: Path) -> None:
    assert broken_rules(path) == []


def test_the_rules_find_what_they_are_for(tmp_path: Path) -> None:
    step = tmp_path / "step.py"
    step.write_text(
        'op.create_table("new")\nop.create_index("ix", "new", ["a"])\nop.create_index("ix", "messages", ["a"])\n'
        'op.drop_column("messages", "a")\nop.execute("drop table x")\nop.create_check_constraint("c", "objects", "a > 0")\n'
    )
    assert [line.partition(":")[0] for line in broken_rules(step)] == ["line 3", "line 4", "line 5", "line 6"]


def test_migrations_form_one_chain_in_the_order_of_their_names() -> None:
    known = [importlib.import_module(f"migrations.versions.{path.stem}") for path in sorted(VERSIONS.glob("m[0-9]*.py"))]
    assert [one.revision for one in known] == [f"{number:04}" for number in range(1, len(known) + 1)]
    assert [one.down_revision for one in known] == [None, *(one.revision for one in known[:-1])]
