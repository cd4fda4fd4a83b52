"""Every page, and the states of it that look different."""

from __future__ import annotations

import re

from tests.browser.conftest import Site

PATHS = {
    "search": "/",
    "found": "/?q=invoice",
    "filtered": "/?q=invoice+in:Sent",
    "facet": "/facets/sender",
    "nothing": "/?q=nothinglikethisanywhere",
    "wrong": "/?q=larger:soon",
    "help": "/search-help",
    "message": "/messages/{Zephyr plans and pictures}",
    "html": "/messages/{Hostile pixel}",
    "source-text": "/messages/{Zephyr plans and pictures}/source",
    "header": "/messages/{From far away}/header",
    "travelled-text": "/messages/{From far away}",
    "invitation": "/messages/{Invitation to the lamp review}",
    "doubtful-links": "/messages/{Your account needs attention}",
    "conversation-files": "/messages/{Zephyr plans and pictures}/files",
    "search-files": "/files?q=invoice",
    "no-files": "/files?q=nothinglikethisanywhere",
    "image": "/messages/{Zephyr plans and pictures}/files/1/view",
    "found-in-file": "/messages/{Zephyr plans and pictures}/files/2/view?find=marsupial",
    "file-text": "/messages/{Zephyr plans and pictures}/files/2/text",
    "found-variants": "/?q=okapi",
    "variants": "/messages/{Re: The okapi}",
    "thread": "/messages/{Re: The long conversation}",
    "rtl": "/messages/{رسالة من اليمين إلى اليسار}",
    "long-subject": "/messages/{Unbroken}",
    "browse": "/browse",
    "folder": "/browse/{ann@lanternworks.example}?folder=API",
    "tags": "/tags",
    "sources": "/sources",
    "source": "/sources/{Lantern Works}",
    "add-source": "/sources/add/imap",
    "edit-source": "/sources/{Lantern Works}/edit",
    "clean-up": "/sources/{Lantern Works}/cleanup",
    "activity": "/activity",
    "dead-letters": "/dead-letters",
    "dead-letter": "/dead-letters/{a dead letter}",
    "alerts": "/alerts",
    "backups": "/backups",
    "exports": "/exports",
    "restores": "/restores",
    "restore": "/restores/{a restore}",
    "holds": "/retention",
    "policies": "/retention/policies",
    "policy": "/retention/policies/{Old newsletters}",
    "labels": "/retention/labels",
    "receipts": "/retention/receipts",
    "erasures": "/retention/erasures",
    "erasure": "/retention/erasures/{DSR 7}",
    "hold-notice": "/hold-notices/{a notice}",
    "dashboard": "/dashboard",
    "settings": "/settings",
    "keys": "/settings/keys",
    "api": "/settings/api",
    "users": "/settings/users",
    "user": "/settings/users/{Ray Reader}",
    "audit": "/settings/audit",
    "share": "/share",
    "offline": "/offline",
    "error": "/messages/nonsense",
    "styleguide": "/styleguide",
}


def address(site: Site, path: str) -> str:
    def found(match: re.Match[str]) -> str:
        known = {**site.sources, **site.ids, **site.records}
        return next(value for name, value in known.items() if name.startswith(match[1]))

    return re.sub(r"\{(.+?)\}", found, path)
