"""Completions for the shell.

stratalog completions bash > ~/.local/share/bash-completion/completions/stratalog
stratalog completions zsh  > ~/.zfunc/_stratalog
stratalog completions fish > ~/.config/fish/completions/stratalog.fish
"""

from __future__ import annotations

import argparse
import importlib

from stratalog.cli import COMMANDS


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def words() -> dict[str, list[str]]:
    """Command to its options and subcommands, read off the parsers themselves."""
    found: dict[str, list[str]] = {}
    for name in COMMANDS:
        try:
            command = importlib.import_module(f"stratalog.cli.{name}")
        except ModuleNotFoundError:
            continue
        parser = argparse.ArgumentParser(prog=name)
        command.arguments(parser)
        found[name] = sorted(_options(parser))
    return found


def _options(parser: argparse.ArgumentParser) -> set[str]:
    options: set[str] = set()
    for action in parser._actions:
        options.update(text for text in action.option_strings if text.startswith("--"))
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                options.add(name)
                options |= _options(sub)
        elif action.choices is not None:
            options.update(str(choice) for choice in action.choices)
    return options


def run(args: argparse.Namespace) -> int:
    table = words()
    if args.shell == "fish":
        for name in table:
            print(f"complete -c stratalog -f -n __fish_use_subcommand -a {name} -d '{COMMANDS[name][0]}'")
        for name, options in table.items():
            for word in options:
                how = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
                print(f"complete -c stratalog -n '__fish_seen_subcommand_from {name}' {how}")
        return 0
    cases = "\n".join(f'    {name}) words="{" ".join(options)}" ;;' for name, options in table.items())
    script = f"""_stratalog() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then words="{" ".join(table)}"; else
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac; fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  [ ${{#COMPREPLY[@]}} -gt 0 ] || COMPREPLY=($(compgen -f -- "$word"))
}}
complete -F _stratalog stratalog"""
    if args.shell == "zsh":
        print("#compdef stratalog\nautoload -U +X bashcompinit && bashcompinit")
    print(script)
    return 0
