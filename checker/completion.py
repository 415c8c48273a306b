"""Completion scripts for bash, zsh and fish, made from the parsers of the commands."""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from checker.cli import command_names
from checker.fields import FIELDS, FieldError
from checker.scenario import preset_names
from models.gates import GATES

FILES = ("FILE", "DIR", "PATH")  # metavars of what is a file


@dataclass(frozen=True, slots=True)
class Values:
    """What may stand in a place: some words, and files too if ``files``."""

    words: tuple[str, ...] = ()
    files: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """An option; ``values`` is ``None`` if it takes none."""

    flags: tuple[str, ...]
    help: str
    values: Values | None


@dataclass(frozen=True, slots=True)
class Command:
    """A command, ``""`` being the one without a name; ``values`` are of its arguments."""

    name: str
    help: str
    options: tuple[Option, ...]
    values: Values


def commands() -> list[Command]:
    """Every command, from its parser; the first is ``check`` itself."""
    names = command_names()
    found = [_command("check", "", Values(tuple(names)))]
    return found + [_command(name, name, None) for name in names]


def script(shell: str) -> str:
    """The completion script for a shell."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](commands())


def _command(module_name: str, name: str, values: Values | None) -> Command:
    module = importlib.import_module(f"checker.commands.{module_name.replace('-', '_')}")
    parser = argparse.ArgumentParser(prog=f"check {name}".strip())
    module.configure(parser)
    actions = parser._actions
    options = tuple(
        Option(tuple(action.option_strings), _first_words(action.help), _values(action))
        for action in actions
        if action.option_strings and action.help != argparse.SUPPRESS
    )
    arguments = [_values(action) or Values() for action in actions if not action.option_strings]
    if values is None:
        words = tuple(word for argument in arguments for word in argument.words)
        values = Values(words, any(argument.files for argument in arguments))
        if name == "explain":
            values = Values(_names_to_explain())
    return Command(name, module.HELP, options, values)


def _values(action: argparse.Action) -> Values | None:
    if action.nargs == 0:
        return None
    if action.choices is not None:
        return Values(tuple(str(choice) for choice in action.choices))
    flag = action.option_strings[-1] if action.option_strings else ""
    if flag == "--preset":
        return Values(tuple(preset_names()))
    if flag == "--trace":
        return Values((*_properties(), "all", "none"))
    if action.metavar == "GATE":
        return Values(tuple(GATES), files=True)
    words = next((_allowed(field.parse) for field in FIELDS if field.flag == flag), ())
    return Values(words, files=action.metavar in FILES or action.type is Path)


def _allowed(parse: object) -> tuple[str, ...]:
    """The words that a field allows, by what it says of a value that it cannot allow."""
    try:
        assert callable(parse)
        parse(object())
    except FieldError as error:
        allowed = str(error)
        if allowed == "must be true or false":
            return ("true", "false")
        if allowed.startswith("must be one of "):
            return tuple(re.findall(r"'([^']*)'", allowed))
    return ()


def _properties() -> Iterator[str]:
    from properties.properties import PROPERTIES, Kind

    return (prop.name for prop in PROPERTIES if prop.kind is not Kind.COVERAGE)


def _names_to_explain() -> tuple[str, ...]:
    from checker.explain import entries

    return tuple(dict.fromkeys(entry.name for entry in entries() if " " not in entry.name))


def _first_words(help: str | None) -> str:
    return re.split(r"[;(]", (help or "").replace("%%", "%"))[0].strip()


# --- bash and zsh ------------------------------------------------------------------------------


def _bash(found: Sequence[Command]) -> str:
    body = _cases(found, 'COMPREPLY=($(compgen -W "{words}" -- "$current"))', BASH_FILES)
    return f"""\
# bash completion of check: source it, or eval "$(check completion bash)"
_check() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" command=""
    COMPREPLY=()
    if [[ $COMP_CWORD -gt 1 ]]; then
        command="${{COMP_WORDS[1]}}"
    fi
{body}
}}
complete -o filenames -F _check check
"""


BASH_FILES = 'COMPREPLY+=($(compgen -f -- "$current"))'


def _zsh(found: Sequence[Command]) -> str:
    body = _cases(found, "compadd -- {words}", "_files")
    return f"""\
#compdef check
# zsh completion of check: eval "$(check completion zsh)" after compinit
_check() {{
    local current="${{words[CURRENT]}}" previous="${{words[CURRENT-1]}}" command=""
    if [[ $CURRENT -gt 2 ]]; then
        command="${{words[2]}}"
    fi
{body}
}}
compdef _check check
"""


def _cases(found: Sequence[Command], words: str, files: str) -> str:
    """The decision that both shells share: the value of an option, an option, an argument."""

    def offer(values: Values, indent: str) -> list[str]:
        lines = [indent + words.format(words=" ".join(values.words))] if values.words else []
        return lines + ([indent + files] if values.files else []) or [indent + ":"]

    top, *others = found
    lines = ['    case "$command" in', f"    {'|'.join(one.name for one in others)}) ;;"]
    lines += ['    *) command="" ;;', "    esac", '    case "$command $previous" in']
    for one in found:
        for option in one.options:
            if option.values is not None:
                places = "|".join(f'"{one.name} {flag}"' for flag in option.flags)
                lines += [f"    {places})", *offer(option.values, " " * 8), "        return ;;"]
    lines += ["    esac", '    case "$command $current" in']
    for one in found:
        flags = tuple(flag for option in one.options for flag in option.flags)
        lines += [f'    "{one.name} "-*)', *offer(Values(flags), " " * 8), "        ;;"]
    for one in others:
        lines += [f'    "{one.name} "*)', *offer(one.values, " " * 8), "        ;;"]
    lines += ['    " "*)', *offer(top.values, " " * 8), "        ;;", "    esac"]
    return "\n".join(lines)


# --- fish --------------------------------------------------------------------------------------


def _fish(found: Sequence[Command]) -> str:
    top, *others = found
    names = " ".join(one.name for one in others)
    lines = ["# fish completion of check: check completion fish | source", "complete -c check -f"]
    nowhere = f"'not __fish_seen_subcommand_from {names}'"
    lines += [
        f"complete -c check -n '__fish_is_first_arg' -a {one.name} -d {_quoted(one.help)}"
        for one in others
    ]
    for one in found:
        where = f"'__fish_seen_subcommand_from {one.name}'" if one is not top else nowhere
        offered = [_fish_option(option) for option in one.options]
        if one is not top and (one.values.words or one.values.files):
            offered.append(_fish_values(one.values))
        lines += [f"complete -c check -n {where} {what}" for what in offered]
    return "\n".join(lines) + "\n"


def _fish_option(option: Option) -> str:
    parts = [
        f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags
    ]
    if option.values is not None:
        parts += ["-r", _fish_values(option.values)]
    return " ".join([*parts, f"-d {_quoted(option.help)}"])


def _fish_values(values: Values) -> str:
    files = "-F" if values.files else "-f"
    return files + (f" -a {_quoted(' '.join(values.words))}" if values.words else "")


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
