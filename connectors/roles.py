"""The role of a folder: by its special-use attribute (RFC 6154), or by a common name."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from connectors.selection import FolderRole

_ATTRIBUTES = {
    "\\sent": FolderRole.SENT,
    "\\archive": FolderRole.ARCHIVE,
    "\\drafts": FolderRole.DRAFTS,
    "\\junk": FolderRole.SPAM,
    "\\spam": FolderRole.SPAM,
    "\\trash": FolderRole.TRASH,
}
_NAMES = {
    FolderRole.SENT: "sent, sent items, sent mail, sent messages, gesendet, gesendete elemente, gesendete objekte, envoyés, "
    "messages envoyés, éléments envoyés, enviados, elementos enviados, inviata, posta inviata, verzonden, "
    "verzonden items, wysłane, elementy wysłane, отправленные, skickat, sendt, lähetetyt, odeslané, 已发送, 已傳送, 送信済み, "
    "送信済みアイテム, 보낸편지함",
    FolderRole.DRAFTS: "drafts, draft, entwürfe, brouillons, borradores, bozze, rascunhos, concepten, wersje robocze, szkice, "
    "черновики, utkast, kladder, luonnokset, koncepty, rozepsané, taslaklar, 草稿, 草稿箱, 下書き, 임시보관함, προσχέδια",
    FolderRole.SPAM: "junk, spam, junk e-mail, junk email, junk mail, bulk mail, bulk, unwanted, unerwünscht, junk-e-mail, "
    "courrier indésirable, indésirables, pourriel, correo no deseado, posta indesiderata, lixo eletrônico, lixo eletrónico, "
    "ongewenste e-mail, ongewenst, wiadomości-śmieci, спам, нежелательная почта, skräppost, søppelpost, uønsket e-post, "
    "roskaposti, nevyžádaná pošta, önemsiz, 垃圾邮件, 垃圾郵件, 迷惑メール, スパム, 스팸메일함, 정크 메일",
    FolderRole.TRASH: "trash, deleted, deleted items, deleted messages, bin, wastebasket, papierkorb, gelöscht, "
    "gelöschte elemente, gelöschte objekte, corbeille, éléments supprimés, messages supprimés, papelera, elementos eliminados, "
    "cestino, posta eliminata, lixeira, itens excluídos, itens eliminados, prullenbak, verwijderd, verwijderde items, "
    "kosz, elementy usunięte, корзина, удаленные, удалённые, papperskorgen, papirkurv, slettede elementer, roskakori, koš, "
    "odstraněná pošta, çöp kutusu, silinmiş öğeler, 已删除, 已删除邮件, 刪除的郵件, 垃圾桶, ゴミ箱, 削除済みアイテム, 휴지통",
    FolderRole.ARCHIVE: "archive, archives, archiv, archivo, archivio, arquivo, archief, archiwum, архив, arkiv, 存档, "
    "アーカイブ",
}
_BY_NAME = {name.strip().casefold(): role for role, names in _NAMES.items() for name in names.split(",")}
_PARENTS = ("inbox", "[gmail]", "[google mail]")


def roles(folders: Mapping[str, Collection[str]], known: Mapping[str, FolderRole] | None = None) -> dict[str, FolderRole]:
    """From names (`/` between levels) and their attributes; `known`: names that mean something at this provider. Folders below
    spam or trash are spam or trash as well."""
    found = {name: role for name in folders if (role := (known or {}).get(name.casefold())) is not None}
    for name, attributes in folders.items():
        for attribute in attributes:
            role = _ATTRIBUTES.get(attribute.lower())
            if role:
                found[name] = role
    marked = {
        role for name, role in found.items() if name.casefold() not in (known or {})
    }  # if the server marks a folder as trash, another folder named Trash is an ordinary one
    for name in folders:
        if name not in found:
            role = FolderRole.INBOX if name.upper() == "INBOX" else role_of(name)
            if role and role not in marked:
                found[name] = role
    for name in folders:
        above = next((found[upper] for upper in _above(name) if found.get(upper) in (FolderRole.SPAM, FolderRole.TRASH)), None)
        if above and name not in found:
            found[name] = above
    return found


def role_of(name: str) -> FolderRole | None:
    """Only at the top level or directly below the inbox, where some servers put all folders."""
    parent, _, leaf = name.rpartition("/")
    return _BY_NAME.get(leaf.casefold()) if not parent or parent.casefold() in _PARENTS else None


def _above(name: str) -> list[str]:
    levels = name.split("/")
    return ["/".join(levels[:depth]) for depth in range(len(levels) - 1, 0, -1)]
