"""Mail files of each kind, as subjects of the contract suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from connectors.base import Batch, Connector, MailboxRef
from connectors.files import FilesConnector, FilesSettings, ImportSettings
from tests.contract.subject import QuietContext, Subject
from tests.support import mailfiles

ADDRESS = "ann@example.org"
BODIES = (
    b"",
    b"From here on it is text.\n",
    b"\nFrom nowhere Mon Jan  6 10:00:00 2020\nand no header follows\n",
    b">From the one before\n>>From the one before that\n\n>>>From afar\n",
    b"From \n>From \nFrom: nobody\n",
    b"a line without end" * 400 + b"\n",
    b"\n\n\n",
)
DELETED = b"X-Mozilla-Status: 0009\nX-Mozilla-Status2: 00000000\n"


def letters(count: int = 410, *, plain: bool = False) -> list[bytes]:
    """`plain`: without what can't be had back from an mboxo, where a `>From ` may have been a `From ` or not."""
    bodies = [body for body in BODIES if not (plain and b">From " in body)]
    made = [mailfiles.message(number, bodies[number % len(bodies)]) for number in range(count)]
    made[7::50] = [mailfiles.message(number, b"caf\xe9\n", newline=b"\r\n") for number in range(7, count, 50)]
    made[20] = made[40] = made[10]  # the same one three times
    return made


LARGE = mailfiles.message(-1, (b"a long line " * 10_000 + b"\nFrom a large one\n>>From it\n") * 80)


class Counting:
    """A connector that says how many messages it gave."""

    def __init__(self, connector: Connector, given: list[int]) -> None:
        self._connector, self._given = connector, given
        self.check, self.mailboxes, self.close = connector.check, connector.mailboxes, connector.close

    def fetch(self, box: MailboxRef, state: Mapping[str, Any], known: Callable[[Collection[str]], set[str]]) -> Iterator[Batch]:
        for batch in self._connector.fetch(box, state, known):
            self._given[0] += len(batch.messages)
            yield batch

    def refetch(self, box: MailboxRef, keys: Collection[str]) -> Iterator[Batch]:
        yield from self._connector.refetch(box, keys)


@contextmanager
def files(
    write: Callable[[Path], dict[str, list[bytes]]],
    folder: Path,
    model: type[FilesSettings] = ImportSettings,
    **settings: Any,
) -> Iterator[Subject]:
    """`write` makes a path below the folder it is given, and says which messages of whom are in it."""
    (folder / "mail").mkdir()
    contents = write(folder / "mail")
    paths = settings.pop("paths", None) or [folder / "mail"]
    given, opened = [0], []

    def connect() -> Connector:
        values = {"mailbox": ADDRESS, "paths": paths, **settings}
        opened.append(FilesConnector(model.model_validate(values), QuietContext(folder / "scratch")))
        return Counting(opened[-1], given)

    def never() -> Connector:
        raise AssertionError("a file does not block")

    yield Subject(
        open=connect,
        open_blocked=never,
        contents=lambda address: Counter(sha256(data).hexdigest() for data in contents[address]),
        downloads=lambda: given[0],
        is_live=False,
    )
    for connector in opened:
        connector.close()


def _mbox(variant: str, folder: Path) -> dict[str, list[bytes]]:
    mails = letters(plain=True) if variant == "mboxcl" else letters()
    mails += [LARGE] if variant == "mboxrd" else []
    if variant.startswith("mboxcl"):
        mails = [mailfiles.with_length(data) for data in mails]
    mailfiles.put(folder / "Inbox.mbox", mailfiles.mbox(mails, variant))
    return {ADDRESS: [_lengthened(data) for data in mails] if variant == "mboxcl" else mails}


def _compressed(folder: Path) -> dict[str, list[bytes]]:
    """One that takes several batches, and others beside it."""
    mails = letters()
    for name, part in (("Inbox.mbox.zst", mails[:300]), ("Sent.mbox.gz", mails[300:350]), ("Old.xz", mails[350:])):
        mailfiles.put(folder / name, mailfiles.COMPRESS[name.rpartition(".")[2]](mailfiles.mbox(part)))
    return {ADDRESS: mails}


def _lengthened(data: bytes) -> bytes:
    """In mboxcl the Content-Length is that of the quoted body, and so it stays in the header."""
    at = mailfiles.body_of(data)
    return (
        mailfiles.mbox([data], "mboxcl")[len(mailfiles.POSTMARK) :][:at] + data[at:] if b"\nFrom " in data[at - 1 :] else data
    )


def _eml(folder: Path) -> dict[str, list[bytes]]:
    mails = letters(120)
    mailfiles.eml_folder(folder / "2020", [*mails[:80], LARGE])
    mailfiles.eml_folder(folder / "2021" / "Übersicht", mails[80:])
    mailfiles.put(folder / "readme.txt", b"This is no mail.\n")
    return {ADDRESS: [*mails, LARGE]}


def _maildir(folder: Path) -> dict[str, list[bytes]]:
    mails = letters(120)
    mailfiles.maildir(folder, mails[:80])
    mailfiles.maildir(folder / ".Sent.2020", mails[80:])
    mailfiles.put(folder / "dovecot-uidlist", b"3 V1578304800 N1\n")
    return {ADDRESS: mails}


def _mh(folder: Path) -> dict[str, list[bytes]]:
    mails = letters(120)
    mailfiles.mh(folder / "inbox", mails[:80])
    mailfiles.mh(folder / "inbox" / "sub", mails[80:])
    return {ADDRESS: mails}


def _emlx(folder: Path) -> dict[str, list[bytes]]:
    mails = [*letters(120), LARGE]
    for number, data in enumerate(mails):
        place = folder / "INBOX.mbox" / "0A1B2C3D-0000-1111-2222-333344445555" / "Data" / str(number // 50) / "Messages"
        mailfiles.put(place / f"{number}.emlx", mailfiles.emlx(data))
    return {ADDRESS: mails}


def _zip(folder: Path) -> dict[str, list[bytes]]:
    mails = letters(120)
    inner = {f"old/{number}.eml": data for number, data in enumerate(mails[:40])}
    inner["Takeout/Mail/All mail.mbox"] = mailfiles.mbox(mails[40:80])
    inner["nested/more.tar.gz"] = mailfiles.COMPRESS["gz"](mailfiles.tarred({"x/Sent": mailfiles.mbox(mails[80:])}))
    mailfiles.put(folder / "all.zip", mailfiles.zipped(inner))
    return {ADDRESS: mails}


def _tar(folder: Path) -> dict[str, list[bytes]]:
    mails = letters(120, plain=True)
    inner = {f"cur/{number}.eml": data for number, data in enumerate(mails[:30])}
    inner["archive.mbox"] = mailfiles.mbox(mails[30:100], "mboxo")
    mailfiles.put(folder / "all.tar.zst", mailfiles.COMPRESS["zst"](mailfiles.tarred(inner)))
    mailfiles.put(folder / "more.tgz", mailfiles.COMPRESS["gz"](mailfiles.tarred({"Sent": mailfiles.mbox(mails[100:])})))
    return {ADDRESS: mails}


def _thunderbird(folder: Path) -> dict[str, list[bytes]]:
    mails = letters(120)
    mails[60:70] = [mailfiles.message(number, more=DELETED) for number in range(1000, 1010)]
    mailfiles.put(folder / "Mail" / "Local Folders" / "Inbox", mailfiles.mbox(mails[:80]))
    mailfiles.put(folder / "Mail" / "Local Folders" / "Inbox.msf", b'// <!-- <mdb:mork:z v="1.4"/> -->\n')
    mailfiles.put(folder / "Mail" / "Local Folders" / "Inbox.sbd" / "Projekte", mailfiles.mbox(mails[80:]))
    mailfiles.put(folder / "Mail" / "Local Folders" / "Trash", b"")
    return {ADDRESS: mails}


def _owners(folder: Path) -> dict[str, list[bytes]]:
    mails = letters(120)
    mailfiles.eml_folder(folder / "Ann Example" / "Inbox", mails[:40])
    mailfiles.eml_folder(folder / "Ann Example" / "Sent", mails[40:70])
    mailfiles.put(folder / "bob.mbox", mailfiles.mbox(mails[70:80]))
    mailfiles.put(folder / "carla" / "Sent.mbox", mailfiles.mbox(mails[80:]))
    return {"ann.example@corp.example": mails[:70], "bob@corp.example": mails[70:80], "carla@corp.example": mails[80:]}


FILES: dict[str, Callable[[Path], AbstractContextManager[Subject]]] = {
    **{f"files-{variant}": partial(files, partial(_mbox, variant)) for variant in ("mboxrd", "mboxcl", "mboxcl2")},
    "files-compressed": partial(files, _compressed),
    "files-tar": partial(files, _tar),
    "files-eml": partial(files, _eml),
    "files-maildir": partial(files, _maildir),
    "files-maildir-watched": partial(files, _maildir, model=FilesSettings),
    "files-mh": partial(files, _mh),
    "files-emlx": partial(files, _emlx),
    "files-zip": partial(files, _zip),
    "files-thunderbird": partial(files, _thunderbird),
    "files-thunderbird-watched": partial(files, _thunderbird, model=FilesSettings),
    "files-owners": partial(files, _owners, mailbox="{folder}@corp.example"),
}
