"""The tree of folders, cut level by level out of a flat list."""

from __future__ import annotations

import random

from archiver.reading.browsing import CountedFolder, FolderNode, FolderTree


def tree(*paths: str) -> FolderTree:
    return FolderTree([CountedFolder(path, 1) for path in paths])


def test_levels_with_the_mail_below_them() -> None:
    found = tree("INBOX", "A/b", "A/b/c", "A/b d", "A", "Z/deep/er", "")
    assert found.children() == [
        FolderNode("A", "A", 4, 1, True),
        FolderNode("INBOX", "INBOX", 1, 1, False),
        FolderNode("Z", "Z", 1, 0, True),
    ]
    assert [(node.name, node.messages) for node in found.children("A")] == [("b", 2), ("b d", 1)]
    assert [node.path for node in found.children("Z")] == ["Z/deep"]
    assert found.children("nowhere") == found.children("A/b/c") == []
    assert [node.path for node in found.find("B")] == ["A/b", "A/b/c", "A/b d", "INBOX"]


def test_every_folder_is_reached_once_however_it_is_paged() -> None:
    rng = random.Random(7)
    names = ["a", "a b", "a-b", "A", "ä", "z", "0", "~", "日本", " "]
    paths = {"/".join(rng.choices(names, k=rng.randint(1, 4))) for _ in range(400)}
    found = tree(*paths)

    def walk(under: str) -> list[str]:
        reached: list[str] = []
        after = ""
        while level := found.children(under, after=after, limit=3):
            assert [node.name for node in level] == sorted(node.name for node in level)
            for node in level:
                assert node.messages == sum(path == node.path or path.startswith(f"{node.path}/") for path in paths)
                reached += [node.path] if node.own else []
                reached += walk(node.path)
            after = level[-1].name
        return reached

    reached = walk("")
    assert sorted(reached) == sorted(paths)


def test_a_hundred_thousand_folders_cost_what_is_shown() -> None:
    class Counting(str):
        __slots__ = ()
        compared = 0

        def __lt__(self, other: str) -> bool:
            Counting.compared += 1
            return str.__lt__(self, other)

    found = tree(*(f"Customers/{number:06}/Orders" for number in range(100_000)))
    found._keys = [Counting(key) for key in found._keys]
    level = found.children("Customers", after="050000", limit=200)
    assert [level[0].name, level[-1].name] == ["050001", "050200"]
    assert Counting.compared < 200 * 17 * 6, "a few binary searches for each folder that is shown"
