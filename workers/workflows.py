"""The workflows that workers run, by name."""

from __future__ import annotations

from archiver.exports.workflow import EXPORT
from archiver.workflows.definition import Registry, registry

WORKFLOWS: Registry = registry(EXPORT)
