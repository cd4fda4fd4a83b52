"""What somebody is told whose settings of a source are wrong."""

from __future__ import annotations

import pytest

from archiver.errors import UsageError
from archiver.sources.kinds import kind_of, validate


def test_a_wrong_value_is_named_with_what_was_given_and_what_is_expected() -> None:
    with pytest.raises(UsageError) as told:
        validate(kind_of("import"), {"paths": ["/mail"], "mailbox": "nobody"}, {})
    assert str(told.value).startswith("the setting mailbox='nobody' of import: expected an address such as ann@example.org")


def test_a_setting_that_there_is_not_is_told_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match=r"the setting mailbx of import: .*\(settings of import: .*mailbox"):
        validate(kind_of("import"), {"paths": ["/mail"], "mailbox": "ann@example.org", "mailbx": "x"}, {})
