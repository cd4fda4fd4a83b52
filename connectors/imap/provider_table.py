"""The table of providers for docs/sources/imap.md: `python -m connectors.imap.provider_table` prints it."""

from __future__ import annotations

from urllib.parse import urlsplit

from connectors.imap.providers import PROVIDERS, ImapProvider

_HEAD = "| provider | recognised by | connections | limits | habits | documented |\n|---|---|---|---|---|---|"


def provider_table() -> str:
    return "\n".join((_HEAD, *map(_row, PROVIDERS))) + "\n"


def _row(row: ImapProvider) -> str:
    by = ", ".join(f"`{host}`" for host in row.hosts) or "its greeting"
    links = ", ".join(f"[{urlsplit(url).hostname}]({url})" for url in row.documented)
    return f"| {row.name} | {by} | {row.connections} | {row.limits or '–'} | {row.habits or '–'} | {links} |"


if __name__ == "__main__":
    print(provider_table(), end="")  # noqa: T201
