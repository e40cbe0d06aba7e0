#!/bin/sh
# SPDX-License-Identifier: MIT
# The pages that tests/test_html makes, in a browser without a screen: no message on its console, the script has drawn what it
# is there to draw, and no hostile name has become script. A page with a planted fault must be found first.
# usage: test_html_browser.sh TEST_HTML. Skipped where there is no Chromium.
set -u
browser=
for name in chromium chromium-browser google-chrome; do
	if command -v "$name" >/dev/null 2>&1; then
		browser=$name
		break
	fi
done
if [ -z "$browser" ]; then
	echo "test_html_browser: no Chromium here"
	exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# load PAGE: its document after the script in $work/dom, the console's lines in $work/console
load() {
	timeout 60 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/profile" \
		--virtual-time-budget=2000 --window-size=1000,800 --enable-logging=stderr --dump-dom "file://$1" \
		>"$work/dom" 2>"$work/log"
	grep 'CONSOLE' "$work/log" >"$work/console"
	grep -q '</html>' "$work/dom"
}

pages=0 wrong=0
say() {
	echo "test_html_browser: $1"
	wrong=$((wrong + 1))
}

# what must be in the document once the script has run
drawn() {
	case $1 in
	tiny-crashes.html | nothing.html) echo '<body' ;;
	check-* | large.html | tiny-passes.html | tiny-fails.html | tiny-bounds.html) echo 'role="gridcell"' ;;
	bench-* | tiny-bench.html) echo 'aria-label="Roofline' ;;
	*) echo 'aria-label="Show in ' ;;
	esac
}

cat >"$work/probe.html" <<'END'
<!DOCTYPE html><html><title>probe</title><body>probe</body></html>
END
if ! load "$work/probe.html"; then
	echo "test_html_browser: $browser does not start here"
	exit 77
fi

mkdir "$work/pages"
if ! PLUMB_HTML_DIR="$work/pages" "$1" >"$work/said" 2>&1; then
	cat "$work/said"
	echo "test_html_browser: $1 has failed"
	exit 1
fi

# a script with an error, and one that the page's policy does not know, are both found
broken=$work/broken.html
sed 's/^"use strict";$/"use strict"; missing();/' "$work/pages/tiny-passes.html" >"$broken"
load "$broken"
if ! [ -s "$work/console" ] || grep -q 'role="gridcell"' "$work/dom"; then
	say "a page with another script than its policy names was found good"
fi
sed -e 's/^"use strict";$/"use strict"; missing();/' -e 's/<meta http-equiv[^>]*>//' "$work/pages/tiny-passes.html" >"$broken"
load "$broken"
if ! grep -q 'missing is not defined' "$work/console"; then
	say "an error in the script was not found"
fi

for page in "$work"/pages/*.html; do
	name=${page##*/}
	pages=$((pages + 1))
	if ! load "$page"; then
		say "$name: no document"
		tail -n 5 "$work/log"
		continue
	fi
	if [ -s "$work/console" ]; then
		say "$name: the console says"
		cat "$work/console"
	fi
	grep -qF "$(drawn "$name")" "$work/dom" || say "$name: '$(drawn "$name")' is not there"
	if grep -q '<title>taken' "$work/dom" || grep -q '<img' "$work/dom"; then
		say "$name: a name has become script"
	fi
done
echo "test_html_browser: $pages pages in $browser, $wrong wrong"
[ "$wrong" -eq 0 ] && [ "$pages" -gt 20 ]
