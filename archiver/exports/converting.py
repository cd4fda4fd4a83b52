"""The step of an export that makes PDF files of messages; a message that can't be shown is named, and the rest goes on."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import IO, Any

import orjson

from archiver.exports.package_files import whole_file
from archiver.exports.packing import Collected
from archiver.exports.selection import PDF, ExportInput
from archiver.exports.volume import Entry
from archiver.extract.pool import ChildFailed, Children
from archiver.store.capacity import explain_full_disk
from archiver.workflows.step_run import StepRun

_MODULE = "archiver.exports.pdf.child"
_SECONDS = 60.0
_MESSAGE_BYTES = 50 << 20
_RECYCLE_AFTER = 250
_ABOUT = ("id", "sha256", "copies")


@dataclass(frozen=True, slots=True)
class ConvertedPart:
    messages: int
    failed: int


def can_convert() -> bool:
    """Whether the extra `pdf` is installed."""
    try:
        return find_spec("typst") is not None
    except ModuleNotFoundError:
        return False


def convert(run: StepRun) -> ConvertedPart:
    given: ExportInput = run.input
    frozen = run.result("freeze")
    collected = Collected(given.files, frozen.part_messages, frozen.parts)
    numbers = range(run.part * frozen.part_messages, min((run.part + 1) * frozen.part_messages, frozen.messages))
    failed = 0
    with (
        Children(_MODULE, 1, _SECONDS, recycle_after=_RECYCLE_AFTER) as children,
        explain_full_disk(),
        whole_file(given.files.pdfs(run.part)) as out,
        whole_file(given.files.pdf_details(run.part)) as details,
    ):
        for done, (entry, message) in enumerate(collected.messages(numbers)):
            run.report(done, len(numbers))
            made = entry if "error" in entry else _convert(children, entry, message, out)
            failed += "error" in made
            details.write(orjson.dumps(made) + b"\n")
    return ConvertedPart(len(numbers) - failed, failed)


def _convert(children: Children, entry: Entry, message: IO[bytes], out: IO[bytes]) -> Entry:
    """The entry with the size of its PDF, which is appended to `out`."""
    known = {name: entry[name] for name in ("id", "sha256")}
    if entry["bytes"] > _MESSAGE_BYTES:
        return {**known, "error": f"no PDF was made of it: it has more than {_MESSAGE_BYTES >> 20} MB"}
    try:
        pdf = _render(children, message.read(), {name: entry[name] for name in _ABOUT})
    except ChildFailed as failed:
        return {**known, "error": f"no PDF was made of it: {failed}"}
    out.write(pdf)
    return {**entry, "pdf_bytes": len(pdf)}


def _render(children: Children, raw: bytes, about: dict[str, Any]) -> bytes:
    """What a picture breaks is shown without pictures."""
    try:
        return children.ask("render", [raw], about=about, pictures=True)[1][0]
    except ChildFailed:
        return children.ask("render", [raw], about=about, pictures=False)[1][0]


def remove_converted(run: StepRun) -> None:
    files = run.input.files
    files.pdfs(run.part).unlink(missing_ok=True)
    files.pdf_details(run.part).unlink(missing_ok=True)


def converted_parts(run: StepRun) -> int:
    return int(run.result("freeze").parts) if run.input.options.format == PDF else 0
