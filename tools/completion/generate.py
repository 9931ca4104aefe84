#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What bash, zsh and fish offer behind the name of a program of ours: made of the programs' own tables of options.

    generate.py SHELL OUTPUT PROGRAM [COMMAND]...

PROGRAM is run with --.table, once for each COMMAND ("bench/dpu"; none: the program has no commands), and what it prints
(soda_conf_table, src/base/conf/conf.h) is written to OUTPUT as a script of SHELL: bash, zsh or fish.
"""
import os
import subprocess
import sys

SCHEMES = ("tcp://", "verbs://", "shm://", "unix://")


class Option:
    def __init__(self, name, letter, kind, argument, choices, help_text):
        self.name, self.letter, self.kind, self.argument = name, letter, kind, argument
        self.choices = choices.split(",") if choices else []
        # its first sentence
        self.help = help_text.split(". ")[0].rstrip(".:")
        self.flag = kind == "flag"
        self.several = kind == "list"

    def values(self):
        """What may stand behind it: ("words", them), ("files",), ("folders",), or ("none",): nothing that a shell knows."""
        word = self.argument.split(",")[0].split(".")[0]
        if self.choices:
            return ("words", self.choices)
        if word in ("FILE", "PATH", "PAGE", "GRAPH"):
            return ("files",)
        if word == "DIR":
            return ("folders",)
        if word == "ADDRESS" and self.name != "metrics":
            return ("words", list(SCHEMES))
        return ("none",)


class Command:
    """words: behind the program's name. positional: as values() of Option; also ("programs",), ("targets",)."""

    def __init__(self, words, table):
        lines = [line.split("\t") for line in table.splitlines()]
        _, self.program, arguments, self.summary = lines[0]
        self.words = words
        self.options = [Option(*line[1:]) for line in lines[1:]]
        self.positional = self.kind_of(arguments)

    @staticmethod
    def kind_of(arguments):
        if "PROGRAM" in arguments:
            return ("programs",)
        if "PID" in arguments:
            return ("targets",)
        if "ADDRESS" in arguments:
            return ("words", list(SCHEMES))
        if any(word in arguments for word in ("INPUT", "PATH", "FILE", "RESULTS")):
            return ("files",)
        return ("none",)


def read_commands(program, names):
    commands = []
    for name in names or [""]:
        words = name.split("/") if name else []
        out = subprocess.run([program, *words, "--.table"], capture_output=True, text=True, check=True).stdout
        commands.append(Command(words, out))
    return commands


def levels(commands):
    """Each beginning of commands that is none itself -> the words that may follow: () -> bench, eval ..."""
    found = {}
    for command in commands:
        for n in range(len(command.words)):
            following = found.setdefault(tuple(command.words[:n]), {})
            whole = n + 1 == len(command.words)
            following.setdefault(command.words[n], command.summary if whole else f"{command.words[n]} ...")
    return found


def single(text):
    """As one word of a shell, in single quotes, for bash and zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


HEAD = "SPDX-License-Identifier: BSD-3-Clause\n# Made by tools/completion/generate.py of the programs' own tables of options.\n"

# bash: one function a program. `path` is the program with the words of its command.
BASH = """# {head}
{function}() {{
	local path={name} cur=${{COMP_WORDS[COMP_CWORD]}} before='' i option='' values='' words=''
	COMPREPLY=()
	for ((i = 1; i < COMP_CWORD; i++)); do
		case "$path ${{COMP_WORDS[i]}}" in
{paths}
		esac
	done
	[ "$COMP_CWORD" = 0 ] || before=${{COMP_WORDS[COMP_CWORD - 1]}}
	# --option=value is three words
	if [ "$cur" = = ]; then
		option=$before cur=
	elif [ "$before" = = ] && [ "$COMP_CWORD" -gt 1 ]; then
		option=${{COMP_WORDS[COMP_CWORD - 2]}}
	else
		option=$before
	fi
	case "$path $option" in
{values}
	esac
	case $values in
	files) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); compopt -o filenames 2>/dev/null; return ;;
	folders) mapfile -t COMPREPLY < <(compgen -d -- "$cur"); compopt -o filenames 2>/dev/null; return ;;
	words)
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
		[[ $words != *://* ]] || compopt -o nospace 2>/dev/null
		return ;;
	list) # separated by commas: what is there stays
		local there=''
		[[ $cur != *,* ]] || there=${{cur%,*}},
		mapfile -t COMPREPLY < <(compgen -P "$there" -W "$words" -- "${{cur##*,}}")
		compopt -o nospace 2>/dev/null
		return ;;
	none) return ;;
	esac
	if [[ $cur == -* ]]; then
		case $path in
{options}
		esac
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
		return
	fi
	case $path in
{positional}
	esac
}}
complete -F {function} {name}
"""

BASH_POSITIONAL = {
    "files": 'mapfile -t COMPREPLY < <(compgen -f -- "$cur"); compopt -o filenames 2>/dev/null',
    # programs that use SODA listen there by their numbers (tools/soda/base/source.c)
    "targets": "mapfile -t COMPREPLY < <(compgen -W \"tcp:// shm:// $(sed -n 's|.*@soda/stat/||p' /proc/net/unix)\""
               ' -- "$cur")',
    "programs": 'mapfile -t COMPREPLY < <(compgen -c -- "$cur")',
}


def words_of(values):
    return f"mapfile -t COMPREPLY < <(compgen -W {single(' '.join(values))} -- \"$cur\")"


def bash_values(path, option):
    names = [f"'{path} --{option.name}'"] + ([f"'{path} -{option.letter}'"] if option.letter else [])
    kind = option.values()
    if kind[0] == "words":
        act = f"values={'list' if option.several else 'words'} words={single(' '.join(kind[1]))}"
    else:
        act = f"values={kind[0]}"
    return f"\t{' | '.join(names)}) {act} ;;"


def bash(name, commands):
    paths, values, options, positional = [], [], [], []
    for before, following in levels(commands).items():
        path = " ".join((name, *before))
        paths += [f"\t\t'{path} {word}') path+=' {word}' ;;" for word in following]
        # directly behind: a word that is no command is followed by nothing
        positional.append(f"\t'{path}') [ \"$COMP_CWORD\" != {len(before) + 1} ] || {words_of(following)} ;;")
        options.append(f"\t\t'{path}') words='--help{'' if before else ' --version'}' ;;")
    for command in commands:
        path = " ".join((name, *command.words))
        values += [bash_values(path, option) for option in command.options if not option.flag]
        names = [f"--{option.name}" for option in command.options] + ["--help", "--version"]
        options.append(f"\t\t'{path}') words={single(' '.join(names))} ;;")
        if command.positional[0] == "programs":
            # behind -- everything is the program's: its name, then files
            paths.append(f"\t\t'{path} --') path+=' --' ;;\n\t\t'{path} -- '*) path='{path} -- .' ;;")
            positional.append(f"\t'{path} --') {BASH_POSITIONAL['programs']} ;;\n"
                              f"\t'{path} -- .') {BASH_POSITIONAL['files']} ;;\n"
                              f"\t'{path}') mapfile -t COMPREPLY < <(compgen -W -- -- \"$cur\") ;;")
        elif command.positional[0] == "words":
            positional.append(f"\t'{path}') {words_of(command.positional[1])} ;;")
        elif command.positional[0] != "none":
            positional.append(f"\t'{path}') {BASH_POSITIONAL[command.positional[0]]} ;;")
    return BASH.format(head=HEAD, name=name, function="_" + name.replace("-", "_"), paths="\n".join(paths) or "\t\t'') ;;",
                       values="\n".join(values), options="\n".join(options), positional="\n".join(positional) or "\t'') ;;")


# zsh: a function a command, and one for each level of commands.

def zsh_text(text):
    """In a specification of _arguments: brackets and colons are its own."""
    return text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


ZSH_ACTIONS = {
    "files": "_files",
    "folders": "_files -/",
    "targets": "_pids",
    "none": " ",
}


def zsh_action(kind, several=False):
    if kind[0] != "words":
        return ZSH_ACTIONS[kind[0]]
    if several:
        return "_values -s , value " + " ".join(kind[1])
    if any(":" in word for word in kind[1]):
        return "{compadd -S '' -- " + " ".join(kind[1]).replace(":", "\\:") + "}"
    return f"({' '.join(kind[1])})"


def zsh_option(option):
    action = "" if option.flag else f":{zsh_text(option.argument or 'value')}:{zsh_action(option.values(), option.several)}"
    text = f"[{zsh_text(option.help)}]{action}"
    if not option.letter:
        return single(f"--{option.name}{'' if option.flag else '='}{text}")
    both = f"(-{option.letter} --{option.name})"
    return (single(f"{both}-{option.letter}{'' if option.flag else '+'}{text}") + " \\\n\t\t" +
            single(f"{both}--{option.name}{'' if option.flag else '='}{text}"))


def zsh_command(function, command):
    lines = [zsh_option(option) for option in command.options]
    lines += [single("(- *)--help[print the options and exit]"), single("(- *)--version[print the version and exit]")]
    if command.positional[0] == "programs":
        lines.append(single("*::program:_normal"))
    elif command.positional[0] != "none":
        lines.append(single(f"*:argument:{zsh_action(command.positional)}"))
    body = " \\\n\t\t".join(lines)
    return f"{function}() {{\n\t_arguments -s -S \\\n\t\t{body}\n}}\n"


def zsh_level(function, before, following):
    described = " ".join(single(f"{word}:{text}") for word, text in following.items())
    cases = "\n".join(f"\t\t{word}) {function}_{word} ;;" for word in following)
    version = "" if before else " \\\n\t\t'(- *)--version[print the version and exit]'"
    return f"""{function}() {{
	local curcontext=$curcontext state line
	local -a commands=({described})
	_arguments -C '(- *)--help[print the commands and exit]'{version} \\
		'1:command:->command' '*::argument:->argument' && return
	case $state in
	command) _describe command commands ;;
	argument)
		case $line[1] in
{cases}
		esac ;;
	esac
}}
"""


def zsh(name, commands):
    top = "_" + name.replace("-", "_")
    parts = [zsh_level("_".join((top, *before)), before, following) for before, following in levels(commands).items()]
    parts += [zsh_command("_".join((top, *command.words)), command) for command in commands]
    return f"#compdef {name}\n# {HEAD}\n" + "\n".join(parts) + f"\n{top} \"$@\"\n"


# fish: a line an option, which counts where the command line has the command's words.

def fish_text(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


FISH_ACTIONS = {
    "files": "-r -F",
    "folders": "-x -a '(__fish_complete_directories)'",
    "none": "-x",
}


def fish_option(option, base):
    line = f"{base} -l {option.name}" + (f" -s {option.letter}" if option.letter else "")
    if not option.flag:
        kind = option.values()
        if kind[0] == "words" and option.several:
            line += f" -x -a \"(__fish_append , {' '.join(kind[1])})\""
        elif kind[0] == "words":
            line += f" -x -a {fish_text(' '.join(kind[1]))}"
        else:
            line += " " + FISH_ACTIONS[kind[0]]
    return line + f" -d {fish_text(option.help)}"


FISH_POSITIONAL = {
    "files": "-F",
    "targets": "-a \"(sed -n 's|.*@soda/stat/||p' /proc/net/unix)\"",
}


def fish(name, commands):
    at = "__" + name.replace("-", "_") + "_at"
    lines = [f"# {HEAD}",
             f"# Whether the command line begins with these words behind {name}; --alone: and has no more.",
             f"function {at}", "\tset -l words (commandline -opc)", "\tset -e words[1]",
             "\tif test \"$argv[1]\" = --alone", "\t\tset -e argv[1]",
             "\t\ttest (count $words) = (count $argv); or return 1", "\tend",
             "\tfor i in (seq (count $argv))", "\t\ttest \"$words[$i]\" = \"$argv[$i]\"; or return 1", "\tend", "end",
             f"complete -c {name} -f"]
    for before, following in levels(commands).items():
        condition = fish_text(" ".join((at, "--alone", *before)))
        for word, text in following.items():
            lines.append(f"complete -c {name} -n {condition} -a {word} -d {fish_text(text)}")
        lines.append(f"complete -c {name} -n {condition} -l help -d 'print the commands and exit'")
        if not before:
            lines.append(f"complete -c {name} -n {condition} -l version -d 'print the version and exit'")
    for command in commands:
        base = f"complete -c {name}" + (f" -n {fish_text(' '.join((at, *command.words)))}" if command.words else "")
        lines += [fish_option(option, base) for option in command.options]
        lines += [f"{base} -l help -d 'print the options and exit'", f"{base} -l version -d 'print the version and exit'"]
        kind = command.positional
        if kind[0] == "words":
            lines.append(f"{base} -a {fish_text(' '.join(kind[1]))}")
        elif kind[0] == "programs":
            # behind the program's own words, and options with their values
            valued = " ".join(f"--{option.name}" + (f" -{option.letter}" if option.letter else "")
                              for option in command.options if not option.flag)
            lines.append(f"{base} -a '(__fish_complete_subcommand --fcs-skip={1 + len(command.words)} {valued})'")
        elif kind[0] != "none":
            lines.append(f"{base} {FISH_POSITIONAL[kind[0]]}")
    return "\n".join(lines) + "\n"


def main():
    shell, output, program, *names = sys.argv[1:]
    text = {"bash": bash, "zsh": zsh, "fish": fish}[shell](os.path.basename(program), read_commands(program, names))
    with open(output, "w", encoding="utf-8") as file:
        file.write(text)


main()
