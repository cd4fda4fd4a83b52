"""A small IMAP server that does what Dovecot never does: it lies, forgets, refuses, and hangs up. Each trouble is a switch."""

from __future__ import annotations

import re
import socketserver
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.support.waiting import DEADLINE_SECONDS


@dataclass
class Mail:
    data: bytes
    flags: str = "\\Seen"
    gmail_id: int = 0
    labels: str = ""


@dataclass
class Script:
    """What is in the server and what goes wrong. All folders have the UIDVALIDITY 7 unless said otherwise."""

    folders: dict[str, dict[int, Mail]]
    capabilities: str = "IMAP4rev1"
    attributes: dict[str, str] = field(default_factory=dict)
    delimiter: str = "/"
    greeting: str = "* OK ready"
    login_says: str = "OK done"
    validity: dict[str, int] = field(default_factory=dict)
    select_says: dict[str, str] = field(default_factory=dict)
    """Folder → the answer to EXAMINE, instead of opening it."""
    drop_on: set[int] = field(default_factory=set)
    """UIDs at whose body the connection is closed."""
    refuse: set[int] = field(default_factory=set)
    """UIDs that spoil any FETCH of a body with a NO."""
    refuse_meta: set[int] = field(default_factory=set)
    withhold: set[int] = field(default_factory=set)
    """UIDs that are listed and left out of any FETCH."""
    nil: set[int] = field(default_factory=set)
    sizes: dict[int, int] = field(default_factory=dict)
    """UID → the RFC822.SIZE that is told."""
    literals: dict[int, int] = field(default_factory=dict)
    """UID → the length that is announced for its body."""
    drop_every: int = 0
    """The connection is closed after so many bodies, again and again."""
    bye: str = ""
    """What is said then."""
    forget_selected: bool = False
    """After a reconnect, FETCH without SELECT answers OK and nothing else."""
    says_to_fetch: str = ""
    """Instead of any body."""
    empty_search: bool = False
    search_omits: set[int] = field(default_factory=set)
    """UIDs that are counted, and never found."""
    backwards: bool = False
    """Bodies come in another order than they were asked for."""
    raw_answers: dict[str, bytes] = field(default_factory=dict)
    """Command → bytes to send instead of an answer; then the connection is closed."""
    silent_on: str = ""
    """The command to which nothing is answered until `released`."""
    released: threading.Event = field(default_factory=threading.Event)
    delete_folder_after: int = 0
    """So many bodies, and the folder is gone."""
    message_limit: int = 0
    """How many messages one SEARCH or FETCH processes, from the end (RFC 9738)."""
    bad_commands: set[str] = field(default_factory=set)
    """Commands that are refused as unknown, whatever the capabilities say."""
    max_connections: int = 0
    """Further ones are refused."""
    append_says: dict[int, str] = field(default_factory=dict)
    """The how-manieth APPEND → its answer instead."""
    commands: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Connection(socketserver.StreamRequestHandler):
    script: Script
    disable_nagle_algorithm = True

    def say(self, text: str | bytes) -> None:
        self.wfile.write((text.encode() if isinstance(text, str) else text) + b"\r\n")

    def handle(self) -> None:
        self.bodies = 0
        self.folder = ""
        try:
            self.script.counts["connections"] += 1
            self.script.counts["open"] += 1
            self.script.counts["most"] = max(self.script.counts["most"], self.script.counts["open"])
            if self.script.max_connections and self.script.counts["open"] > self.script.max_connections:
                self.say("* BYE too many connections from your address")
                return
            self.say(self.script.greeting)
            for line in self.rfile:
                if not self.command(line.decode().rstrip("\r\n")):
                    return
        except (OSError, ValueError):
            return
        finally:
            with self.script.lock:
                self.script.counts["open"] -= 1

    def command(self, line: str) -> bool:
        tag, _, rest = line.partition(" ")
        name, _, argument = rest.partition(" ")
        if name.upper() == "UID":
            name, _, argument = argument.partition(" ")
        name = name.upper()
        with self.script.lock:
            self.script.commands.append(rest)
        if name == self.script.silent_on:
            self.script.released.wait(DEADLINE_SECONDS)
        if name in self.script.raw_answers:
            self.wfile.write(self.script.raw_answers[name])
            return False
        handler = None if name in self.script.bad_commands else getattr(self, f"do_{name.lower()}", None)
        answer = handler(argument) if handler else "BAD what is that"
        if answer is None:
            return False
        self.say(f"{tag} {answer}")
        return True

    def do_capability(self, _: str) -> str:
        self.say(f"* CAPABILITY {self.script.capabilities}")
        return "OK done"

    def do_login(self, _: str) -> str:
        return self.script.login_says

    def do_list(self, argument: str) -> str:
        wanted = re.findall(r'"([^"]*)"', argument)[1]
        for name in self.script.folders:
            if wanted in ("*", name):
                self.say(f'* LIST ({self.script.attributes.get(name, "")}) "{self.script.delimiter}" "{name}"')
        return "OK done"

    def do_status(self, argument: str) -> str:
        name = re.match(r'"([^"]*)"', argument)[1]  # type: ignore[index]
        mails = self.script.folders.get(name)
        if mails is None:
            return "NO [NONEXISTENT] no such folder"
        uidnext = max(mails, default=0) + 1
        validity = self.script.validity.get(name, 7)
        self.say(f'* STATUS "{name}" (MESSAGES {len(mails)} UIDNEXT {uidnext} UIDVALIDITY {validity})')
        return "OK done"

    def do_examine(self, argument: str) -> str:
        name = re.match(r'"([^"]*)"', argument)[1]  # type: ignore[index]
        if name in self.script.select_says:
            return self.script.select_says[name]
        if name not in self.script.folders:
            return "NO [NONEXISTENT] no such folder"
        self.folder = name
        mails = self.script.folders[name]
        self.say(f"* {len(mails)} EXISTS")
        self.say(f"* OK [UIDVALIDITY {self.script.validity.get(name, 7)}] fine")
        self.say(f"* OK [UIDNEXT {max(mails, default=0) + 1}] fine")
        return "OK [READ-ONLY] done"

    def do_create(self, argument: str) -> str:
        self.script.folders[argument.strip('"')] = {}
        return "OK done"

    def do_append(self, argument: str) -> str:
        name = re.match(r'"([^"]*)"', argument)[1]  # type: ignore[index]
        self.say("+ go on")
        data = self.rfile.read(int(re.search(r"\{(\d+)\}$", argument)[1]))  # type: ignore[index]
        self.rfile.readline()
        self.script.counts["appends"] += 1
        if self.script.counts["appends"] in self.script.append_says:
            return self.script.append_says[self.script.counts["appends"]]
        mails = self.script.folders[name]
        mails[max(mails, default=0) + 1] = Mail(data, argument.partition("(")[2].partition(")")[0])
        return "OK done"

    def do_search(self, argument: str) -> str:
        mails = self.script.folders.get(self.folder, {})
        found = [] if self.script.empty_search else sorted(set(mails) - self.script.search_omits)
        for first, last in re.findall(r"UID (\d+)(?::(\d+|\*))?", argument):
            low, high = int(first), (max(mails, default=0) if last == "*" else int(last or first))
            found = [uid for uid in found if min(low, high) <= uid <= max(low, high)]
        if sequence := re.match(r"(\d+):\*$", argument):
            found = found[int(sequence[1]) - 1 :]
        if argument.startswith("X-GM-MSGID"):
            found = [uid for uid in found if f'"{mails[uid].gmail_id}"' in argument]
        limit = self.script.message_limit
        said = "".join(f" {uid}" for uid in (found[-limit:] if limit else found))
        self.say(f"* SEARCH{said}")
        return f"OK [MESSAGELIMIT {limit} {found[-limit]}] a part" if limit and len(found) > limit else "OK done"

    def do_fetch(self, argument: str) -> str | None:
        if not self.folder:
            return "OK nothing" if self.script.forget_selected else "BAD select first"
        set_, _, items = argument.partition(" ")
        mails = self.script.folders.get(self.folder)
        if mails is None:
            return "NO [NONEXISTENT] it is gone"
        asked = [uid for uid in _expand(set_) if uid in mails]
        limit = self.script.message_limit
        if limit and len(asked) > limit:
            self.script.counts["too many asked"] += 1
            asked = asked[-limit:]
        if "HEADER.FIELDS" in items:
            for number, uid in enumerate(asked, 1):
                data, head = mails[uid].data, mails[uid].data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
                start = f"* {number} FETCH (UID {uid} RFC822.SIZE {len(data)} BODY[HEADER.FIELDS (DATE)] {{{len(head)}}}\r\n"
                self.wfile.write(start.encode() + head + b")\r\n")
            return "OK done"
        if "BODY.PEEK[]" in items:
            return self.bodies_of(asked, mails)
        if "BODY[" in items or "STORE" in items:
            self.script.counts["changes of the mailbox"] += 1
        if self.script.refuse_meta & set(asked):
            return "NO [SERVERBUG] corrupted"
        for number, uid in enumerate(asked, 1):
            if uid not in self.script.withhold:
                self.say(f"* {number} FETCH ({self.meta(uid, mails[uid], items)})")
        return "OK done"

    def meta(self, uid: int, mail: Mail, items: str) -> str:
        said = f'UID {uid} FLAGS ({mail.flags}) INTERNALDATE "01-Feb-2020 10:00:00 +0100"'
        said += f" RFC822.SIZE {self.script.sizes.get(uid, len(mail.data))}"
        if "X-GM-MSGID" in items:
            said += f" X-GM-MSGID {mail.gmail_id} X-GM-THRID {mail.gmail_id + 1} X-GM-LABELS ({mail.labels})"
        return said

    def bodies_of(self, asked: list[int], mails: dict[int, Mail]) -> str | None:
        if self.script.says_to_fetch:
            return self.script.says_to_fetch
        for number, uid in enumerate(reversed(asked) if self.script.backwards else asked, 1):
            if uid in self.script.drop_on or (self.script.drop_every and self.bodies >= self.script.drop_every):
                if self.script.bye:
                    self.say(f"* BYE {self.script.bye}")
                return None
            if uid in self.script.refuse:
                return "NO this one is broken"
            if uid in self.script.withhold:
                continue
            self.bodies += 1
            self.script.counts["bodies"] += 1
            if uid in self.script.nil:
                self.say(f"* {number} FETCH (UID {uid} BODY[] NIL)")
                continue
            data = mails[uid].data
            length = self.script.literals.get(uid, len(data))
            self.wfile.write(f"* {number} FETCH (BODY[] {{{length}}}\r\n".encode() + data + f" UID {uid})\r\n".encode())
            if self.script.delete_folder_after and self.script.counts["bodies"] >= self.script.delete_folder_after:
                self.script.folders.pop(self.folder, None)
                return None
        return "OK done"


def _expand(text: str) -> Iterator[int]:
    for piece in text.split(","):
        low, _, high = piece.partition(":")
        yield from range(int(low), int(high or low) + 1)


@contextmanager
def imap_server(script: Script) -> Iterator[int]:
    """The port."""
    handler = type("Handler", (_Connection,), {"script": script})

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()
