"""Scripts by which shells complete command lines of doit, out of the menu.

A shell runs a script at each press of a key, and doit takes a quarter of a second to start. So a
script holds all words: the names of recipes are those of the day on which it was printed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pipelines import menu

Values = Mapping[str, Sequence[str]]
"""Variable → all values it can have; what is not here is a file, or open."""
_HELP = "help"
_HEAD = "Completes command lines of bitkiln's doit; printed by: doit completion shell="


def words_of(command: menu.Command) -> list[str]:
    """Return what can stand behind a command: its variables, and the fields changed most."""
    names = [*command.heeds, *(menu.FIELDS if command.recipe else ())]
    return [f"{name}=" for name in dict.fromkeys(names)]


def bash(values: Values) -> str:
    """Return the script for bash, which may or may not split words at `=`."""
    commands = " ".join([*menu.COMMAND_NAMES, _HELP])
    lines = [
        f"# {_HEAD}bash",
        "_bitkiln_doit() {",
        '    local word="${COMP_WORDS[COMP_CWORD]}" name="" before="" command="" each',
        '    if [[ "$word" == "=" ]]; then',
        '        name="${COMP_WORDS[COMP_CWORD-1]}" word=""',
        '    elif [[ "$word" == *=* ]]; then',
        '        name="${word%%=*}" before="${word%%=*}=" word="${word#*=}"',
        '    elif (( COMP_CWORD > 1 )) && [[ "${COMP_WORDS[COMP_CWORD-1]}" == "=" ]]; then',
        '        name="${COMP_WORDS[COMP_CWORD-2]}"',
        "    fi",
        '    case "$name" in',
        *(
            f'        {name}) COMPREPLY=($(compgen -P "$before" -W "{" ".join(known)}"'
            ' -- "$word")); return ;;'
            for name, known in values.items()
        ),
        '        ?*) COMPREPLY=($(compgen -P "$before" -f -- "$word")); return ;;',
        "    esac",
        '    for each in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
        f'        case "$each" in {"|".join(commands.split())}) command="$each"; break ;; esac',
        "    done",
        '    case "$command" in',
        f'        "") COMPREPLY=($(compgen -W "{commands}" -- "$word")) ;;',
        f'        {_HELP}) COMPREPLY=($(compgen -W "{commands}" -- "$word")) ;;',
        *(
            f'        {each.name}) COMPREPLY=($(compgen -W "{" ".join(words_of(each))}"'
            f'{" -f" if each.positional else ""} -- "$word"));'
            " compopt -o nospace 2>/dev/null ;;"
            for each in menu.ALL
        ),
        "    esac",
        "}",
        "complete -F _bitkiln_doit doit",
    ]
    return "\n".join(lines) + "\n"


def zsh(values: Values) -> str:
    """Return the script for zsh, as a file `_doit` in its `fpath` or to be sourced."""
    commands = " ".join([*menu.COMMAND_NAMES, _HELP])
    lines = [
        "#compdef doit",
        f"# {_HEAD}zsh",
        "_bitkiln_doit() {",
        "    local each command=''",
        '    case "$PREFIX" in',
        *(
            f"        ({name}=*) compset -P '*='; compadd -- {' '.join(known)}; return ;;"
            for name, known in values.items()
        ),
        "        (*=*) compset -P '*='; _files; return ;;",
        "    esac",
        '    for each in "${(@)words[2,CURRENT-1]}"; do',
        f'        case "$each" in ({"|".join(commands.split())}) command="$each"; break ;; esac',
        "    done",
        '    case "$command" in',
        f"        (''|{_HELP}) compadd -- {commands} ;;",
        *(
            f"        ({each.name}) compadd -S '' -- {' '.join(words_of(each))}"
            f"{'; _files' if each.positional else ''} ;;"
            for each in menu.ALL
        ),
        "    esac",
        "}",
        'if [[ "${funcstack[1]}" == _doit ]]; then _bitkiln_doit "$@"; '
        "else compdef _bitkiln_doit doit; fi",
    ]
    return "\n".join(lines) + "\n"


def fish(values: Values) -> str:
    """Return the script for fish, which completes words as wholes."""
    commands = " ".join([*menu.COMMAND_NAMES, _HELP])
    none = f"'not __fish_seen_subcommand_from {commands}'"
    lines = [f"# {_HEAD}fish", "complete -c doit -e"]
    for each in menu.ALL:
        lines.append(f"complete -c doit -f -n {none} -a {each.name} -d {_quoted(each.doc)}")
    lines.append(f"complete -c doit -f -n {none} -a {_HELP}")
    seen = f"'__fish_seen_subcommand_from {_HELP}'"
    lines.append(f"complete -c doit -f -n {seen} -a '{commands}'")
    # Behind the `=` of any other variable stands a file, whatever the lines below say.
    other = f"'string match -qr \"^(?!({'|'.join(values)})=)[\\w.]+=\" -- (commandline -ct)'"
    lines.append(f"complete -c doit -F -n {other}")
    for each in menu.ALL:
        seen = f"'__fish_seen_subcommand_from {each.name}'"
        flag = "-F" if each.positional else "-f"
        for word in words_of(each):
            name = word.removesuffix("=")
            known = " ".join(f"{word}{value}" for value in values.get(name, [""]))
            meaning = {**menu.FIELDS, **menu.MEANINGS}[name]
            lines.append(f"complete -c doit {flag} -n {seen} -a '{known}' -d {_quoted(meaning)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A text between single quotes, as fish reads them."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS: Mapping[str, Callable[[Values], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
SHELLS = tuple(SCRIPTS)
