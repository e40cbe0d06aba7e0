#!/bin/bash
# SPDX-License-Identifier: MIT
# What is made from the tables of options: the completions of bash, zsh and fish offer every command, option and value that help
# shows, and the manual page has them too and is sound. A shell that is not installed has its script looked at as text only.
# usage: test_completion.sh PROGRAM
set -eu
plumb=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
unset COLUMNS
fail() {
	echo "test_completion: $1"
	exit 1
}

"$plumb" completion bash >bash.sh
"$plumb" completion zsh >_plumb
"$plumb" completion fish >plumb.fish
"$plumb" man >plumb.1
status=0
"$plumb" completion tcsh >said 2>&1 || status=$?
[ "$status" -eq 2 ] && grep -q "expected bash, zsh or fish" said || fail "tcsh is not refused"

# --- bash, as readline calls it ---
bash -n bash.sh
# shellcheck disable=SC1091
. ./bash.sh
offered() { # offered WORD...: what completes the last of them; '' begins a new one
	COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
	_plumb
	printf '%s\n' "${COMPREPLY[@]}" | LC_ALL=C sort | tr '\n' ' ' | sed 's/ $//; s/^ //'
}
is() { # is EXPECTED WORD...
	expected=$1
	shift
	said=$(offered "$@")
	[ "$said" = "$expected" ] || fail "bash: '$*' offers '$said', expected '$expected'"
}
has() { # has EXPECTED WORD...: among others
	expected=$1
	shift
	case " $(offered "$@") " in
	*" $expected "*) ;;
	*) fail "bash: '$*' does not offer '$expected': $(offered "$@")" ;;
	esac
}
mkdir -p files/folder
cd files
touch a.h5 b.h5 c.json mine.so 'two words.h5'
is "bench bisect" plumb b
is "check" plumb ch
is "opt ref" plumb check --set ''
is "opt" plumb check --set o
is "opt" plumb check --set = o # --set=o, the way readline cuts it
is "simt" plumb check --device s
is "golden" plumb gold
is "diff" plumb golden d
is "--prefill --profile --prompt-from" plumb golden make --pr
is "a.h5 b.h5 folder two words.h5" plumb check ''
is "folder" plumb check --checkpoint ''
is "a.h5 b.h5 c.json folder mine.so two words.h5" plumb check --json ''
is "gdn_conv=" plumb check --op gdn_c
is "folder mine.so opt ref" plumb check --op gdn_conv = ''
is "opt" plumb check --op gdn_conv = o
is "opt" plumb check --op = gdn_conv = o
is "" plumb check --layers ''
is "" plumb golden make --tensors ''
is "" plumb check --shard ''
has ties plumb test --class t
is "gdn_conv" plumb bench --op gdn_c
is "gdn_conv" plumb test gdn_c
is "gdn_conv=" plumb test --op gdn_c
is "" plumb check --threads ''
is "layer4" plumb run --synthetic l
is "tolerances" plumb list t
has gdn_recurrence plumb list g
has served plumb list s
is "bash" plumb completion b
is "c.json folder" plumb merge ''

cd "$work"

# --- every option of every help, in all of them ---
commands=$("$plumb" --help | sed -n 's/^  \([a-z-]*\)  *[a-z].*/\1/p' | grep -vx plumb)
[ "$(echo "$commands" | wc -l)" -ge 12 ] || fail "help names only: $commands"
options=0
one() { # one COMMAND...: its options
	"$plumb" "$@" --help >help.txt
	grep -oE '^  (-[a-z], )?--[a-z0-9-]+' help.txt | grep -oE -e '--[a-z0-9-]+' >names
	[ "$(wc -l <names)" -ge 5 ] || fail "$*: no options in its help"
	man_part=$(sed -n "/^\.SS plumb $*\$/,/^\.S[SH] [a-zO]/p" plumb.1 | sed 's/\\-/-/g')
	fish_part=$(grep -F "from ${*: -1}'" plumb.fish)
	zsh_part=$(sed -n "/^	'$*')\$/,/;;\$/p" _plumb)
	while read -r name; do
		has "$name" plumb "$@" "$name"
		case $name in --help | --quiet | --verbose | --color | --no-color) ;; *)
			grep -qF -e "\\fB$name\\fR" <<<"$man_part" || fail "$*: $name is not in the manual page"
			;;
		esac
		grep -qE -e " -l ${name#--} " <<<"$fish_part" || fail "fish: $* $name is not there"
		grep -qE -e "$name(=?\[|})" <<<"$zsh_part" || fail "zsh: $* $name is not there"
		options=$((options + 1))
	done <names
}
for command in $commands; do
	has "$command" plumb "$command"
	grep -q "use_subcommand -a $command " plumb.fish || fail "fish: no $command"
	grep -q "^			'$command:" _plumb || fail "zsh: no $command"
	if [ "$command" = golden ]; then
		for part in make verify diff; do one golden $part; done
	else
		one "$command"
	fi
done

# --- the other shells themselves, where they are ---
shells=bash
if command -v zsh >/dev/null; then
	zsh -n _plumb
	shells="$shells, zsh"
fi
if command -v fish >/dev/null; then
	fish -n plumb.fish
	said=$(HOME=$work fish -c 'source plumb.fish; complete -C "plumb check --set "; complete -C "plumb ch"; complete -C "plumb golden v"' 2>said | cut -f1 | tr '\n' ' ')
	[ "$said" = "opt ref check verify " ] || fail "fish offers '$said'; $(cat said)"
	shells="$shells, fish"
fi

# --- the manual page ---
for section in NAME SYNOPSIS COMMANDS OPTIONS "EXIT STATUS" ENVIRONMENT; do
	grep -q "^\.SH $section" plumb.1 || fail "the manual page has no section $section"
done
checked="not looked at"
if command -v groff >/dev/null; then
	groff -man -Tutf8 -ww plumb.1 >page.txt 2>said || fail "groff: $(cat said)"
	[ ! -s said ] || fail "groff: $(head -3 said)"
	grep -q "no such device" page.txt || fail "the formatted page has no exit status"
	checked="sound (groff)"
fi
if command -v mandoc >/dev/null; then
	mandoc -T lint -W warning plumb.1 >said 2>&1 || true
	grep -vE "STYLE|missing date" said >odd || true
	[ ! -s odd ] || fail "mandoc: $(head -3 odd)"
	checked="$checked (mandoc)"
fi
echo "test_completion: $options options in $shells; manual page $checked"
