#!/bin/sh
# SPDX-License-Identifier: MIT
# What --help of every command says can be typed: each option, and each example. Nothing is run: an option that no command has
# stands at the end, and must be the first that is found wrong. Examples that name files are run as well, in an empty folder,
# and must come as far as a file that is not there. usage: test_examples.sh PROGRAM
set -u
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
options=0 examples=0 opened=0 wrong=0

say() {
	echo "test_examples: $1:"
	cat said
	wrong=$((wrong + 1))
}

stops_at_the_end() { # stops_at_the_end ARGUMENT...: the last one is what is wrong
	"$program" "$@" --no-such-option >said 2>&1
	if [ $? -ne 2 ] || ! grep -qF -- "--no-such-option" said; then
		say "plumb $* --no-such-option"
	fi
}

# every command, and those of two words
for word in $("$program" --help | sed -n '/^examples:/q;s/^  \([a-z][a-z-]*\)  *[a-z].*/\1/p'); do
	"$program" "$word" --help >help 2>&1
	inner=$(sed -n "s/^  $word \([a-z][a-z]*\)  *[a-z].*/\1/p" help)
	if grep -q '^examples:' help || [ -z "$inner" ]; then
		echo "$word"
	else
		for second in $inner; do echo "$word $second"; done
	fi
done >commands

while read -r command; do
	"$program" $command --help >help 2>&1 || { cp help said; say "plumb $command --help"; }
	# "  --name VALUE what it does": a value stands one space behind, the words of a flag more
	sed -n '/^options:/,/^$/{
		s/^  \(--[a-z0-9-]*\) \([^ ][^ ]*\).*/\1 \2/p
		t
		s/^  \(--[a-z0-9-]*\)\( .*\)\{0,1\}$/\1/p
	}' help | grep -v '^--help' >listed
	while read -r option value; do
		case $value in
		'') set -- $command "$option" ;;
		N | GiB | PERCENT | [A-Z]) set -- $command "$option" 1 ;;
		*) set -- $command "$option" x ;;
		esac
		stops_at_the_end "$@"
		options=$((options + 1))
	done <listed
	sed -n '/^examples:/,/^$/s/^  plumb //p' help | sed 's/ [|>].*//; s/  .*//' >lines # without pipes, and without words behind
	while read -r line; do
		eval "set -- $line"
		stops_at_the_end "$@"
		examples=$((examples + 1))
		case " $line " in
		*.h5* | *" DIR "* | *.json\ --compare*)
			timeout 60 "$program" "$@" >said 2>&1
			if [ $? -ne 2 ] || ! grep -qE 'No such file|cannot open|not there|nothing is there' said; then
				say "plumb $line, where no file is"
			fi
			opened=$((opened + 1))
			;;
		esac
	done <lines
	if [ ! -s lines ]; then
		cp help said
		say "plumb $command --help, in which no example is seen"
	fi
done <commands
echo "test_examples: $(wc -l <commands) commands, $options options, $examples examples, $opened of them up to a file; $wrong wrong"
[ "$wrong" -eq 0 ] && [ "$examples" -gt 20 ] && [ "$options" -gt 100 ]
