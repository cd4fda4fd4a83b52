"""Every command explains itself: a bracket in a help text that is taken for markup would end in a traceback."""

from collections.abc import Iterator

import pytest
import typer
from typer.testing import CliRunner

from archiver.cli.app import COMMANDS, build
from archiver.cli.terminal.summaries import summary


def names(app: typer.Typer) -> list[str]:
    return [name for command in app.registered_commands if (name := command.name) is not None]


def commands() -> Iterator[tuple[str, ...]]:
    root = build()
    groups = {group.name: group.typer_instance for group in root.registered_groups}
    yield ()
    for name in COMMANDS:
        yield (name,)
        group = groups.get(name)
        if group is not None:
            yield from ((name, command) for command in names(group))


@pytest.mark.parametrize("command", tuple(commands()), ids=" ".join)
def test_help_is_shown(command: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(build(), [*command, "--help"])
    assert (shown.exit_code, shown.exception) == (0, None)
    assert "Usage" in shown.stdout


def test_the_list_of_commands_says_of_each_what_it_says_itself() -> None:
    root = build()
    own = {command.name: command.callback.__doc__ for command in root.registered_commands if command.callback is not None}
    own |= {group.name: str(group.typer_instance.info.help) for group in root.registered_groups if group.typer_instance}
    for name, target in COMMANDS.items():
        assert " ".join(summary(target).split()) == " ".join((own[name] or "").split()), name
    listed = CliRunner().invoke(build(()), ["--help"]).stdout
    places = [listed.index(f"│ {name} ") for name in COMMANDS]
    assert places == sorted(places)
