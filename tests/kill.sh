#!/bin/sh
# SPDX-License-Identifier: MIT
# Commands killed at random moments: a file they leave is whole, or says of itself that it is not.
#   kill.sh PROGRAM SOURCE USER_KERNELS [TRIES]
# A whole file: a case that replays (0 or 1), a golden file that opens, a report that ends as JSON does. Left-overs are named
# *.unfinished-PID or *.part (refused by every reader), or *.tmp-PID-N.
set -eu
program=$1 source=$2 kernels=$3 tries=${4:-100}
folder=$(mktemp -d "${TMPDIR:-/tmp}/plumb-kill-XXXXXX")
trap 'rm -rf "$folder"' EXIT
cd "$folder"
tiny="$source/golden/tiny/tiny.h5 --checkpoint $source/golden/tiny/checkpoint"
export PLANTED=hc_inject@1=factor

commands=5
"$program" golden --help >/dev/null 2>&1 && commands=6
command() {
	case $1 in
	0) exec "$program" check $tiny --json report.json --quiet ;;
	1) exec "$program" bisect $tiny --op all="$kernels/planted.so" --no-search --steps 1 --case case.h5 --json found.json ;;
	2) exec "$program" replay "$source"/golden/cases/*.h5 --json replayed.json ;;
	3) exec "$program" run --checkpoint "$source/golden/tiny/checkpoint" --tokens 1,2,3 --steps 8 ;;
	4) exec "$program" bisect $tiny --op hc_inject="$kernels/planted.so" --call hc_inject@2 --case called.h5 ;;
	5) exec "$program" golden make made.h5 --checkpoint "$source/golden/tiny/checkpoint" --tokens 1,2,3,4,5,6,7,8 ;;
	esac
}

# How long each takes, in milliseconds: a moment within it is drawn.
now() {
	date +%s%3N
}
for c in $(seq 0 $((commands - 1))); do
	start=$(now)
	(command "$c" >/dev/null 2>&1) || :
	eval "took_$c=$(($(now) - start))"
done
random=${PLUMB_KILL_SEED:-1}
whole=0 unfinished=0
for try in $(seq "$tries"); do
	c=$((try % commands))
	eval "took=\$took_$c"
	random=$(((random * 1103515245 + 12345) % 2147483648))
	moment=$((random / 65536 % (took + took / 4 + 1)))
	[ $((try % 3)) = 0 ] && rm -f ./*.json ./*.h5
	command "$c" >/dev/null 2>&1 &
	sleep "$((moment / 1000)).$(printf %03d $((moment % 1000)))"
	kill -9 $! 2>/dev/null || :
	wait $! 2>/dev/null || :
	for file in ./*; do
		case $file in
		*.unfinished-*)
			unfinished=$((unfinished + 1))
			if "$program" replay "$file" >/dev/null 2>&1 || "$program" check "$file" --checkpoint x >/dev/null 2>&1; then
				echo "try $try: $file was taken for a whole file" >&2
				exit 1
			fi
			# a child of the killed command may still be writing or removing it
			sleep 0.2
			rm -f "$file"
			;;
		*.tmp-*) rm -f "$file" ;;
		*.part*) # what golden make goes on from
			status=0
			"$program" check "$file" --checkpoint "$source/golden/tiny/checkpoint" >/dev/null 2>&1 || status=$?
			if [ "$status" != 2 ]; then
				echo "try $try: $file was taken for a whole file" >&2
				exit 1
			fi
			unfinished=$((unfinished + 1))
			rm -rf "$file"
			;;
		./case.h5 | ./called.h5)
			status=0
			"$program" replay "$file" --op hc_inject="$kernels/planted.so" >/dev/null 2>&1 || status=$?
			if [ "$status" -gt 1 ]; then
				echo "try $try: $file is damaged" >&2
				exit 1
			fi
			whole=$((whole + 1))
			;;
		./made.h5)
			status=0
			"$program" check "$file" --checkpoint "$source/golden/tiny/checkpoint" --quiet >/dev/null 2>&1 || status=$?
			if [ "$status" -gt 1 ]; then
				echo "try $try: $file is damaged" >&2
				exit 1
			fi
			whole=$((whole + 1))
			;;
		*.json)
			if [ "$(tail -c 2 "$file" | tr -d '\n')" != "}" ]; then
				echo "try $try: $file is cut" >&2
				exit 1
			fi
			whole=$((whole + 1))
			;;
		esac
	done
done
echo "kill.sh: $tries kills of $commands commands: $whole whole files seen, $unfinished unfinished ones refused, none in between"
