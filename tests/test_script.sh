#!/bin/sh
# SPDX-License-Identifier: MIT
# tools/test.sh, which CI believes: what it counts and its exit status, with the real ctest on small sets of tests that pass, fail,
# crash, hang, abort, are skipped or are not there, and with builds that fail. usage: test_script.sh SOURCE_DIR
set -u
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/bin" "$work/tools" "$work/tests"
cp "$source/tools/test.sh" "$work/tools/"
echo "exit 0" >"$work/tools/packages.sh"
echo may_be_skipped >"$work/tests/may_skip.txt"
real_ctest=$(command -v ctest) || exit 77

cat >"$work/bin/cmake" <<'END'
#!/bin/sh
# stands for the build: $BROKEN names the preset whose build fails
case " $* " in *" --build "*" $BROKEN "*) echo "an error"; exit 1 ;; esac
END
cat >"$work/bin/ctest" <<'END'
#!/bin/sh
# the real one: --preset NAME MORE... means the tests in folder NAME; the options are those of the presets
case $2 in dies) kill -9 $$ ;; esac
cd "$WORK/$2" && shift 2 && exec "$REAL_CTEST" --output-on-failure --no-tests=error --timeout 2 "$@"
END
chmod +x "$work/bin/cmake" "$work/bin/ctest"
export WORK="$work" REAL_CTEST="$real_ctest"

preset() { # preset NAME TEST...: a set of tests
	folder=$work/$1
	shift
	mkdir -p "$folder"
	for test; do
		skip=
		case $test in
		good*) run='true' ;;
		fails) run='echo "9/9 Test #9: inner ...   Passed  0.01 sec"; echo "	<testcase name=\"x\" status=\"run\">"; false' ;;
		crashes) run='kill -SEGV $$' ;;
		aborts) run='kill -ABRT $$' ;;
		hangs) run='sleep 30' ;;
		*skipped) run='exit 77' ;;
		esac
		if [ "$test" = absent ]; then
			echo "add_test($test $folder/nothing)"
		else
			echo "add_test($test sh -c [=[$run]=])"
		fi
		echo "set_tests_properties($test PROPERTIES SKIP_RETURN_CODE 77)"
	done >"$folder/CTestTestfile.cmake"
}

cases=0 wrong=0
expect() { # expect STATUS LAST_LINE WORDS PRESETS [PRESET_WITH_A_BROKEN_BUILD]
	PATH="$work/bin:$PATH" PLUMB_TEST_PRESETS="$4" BROKEN="${5:-no preset}" sh "$work/tools/test.sh" >"$work/said" 2>&1
	status=$?
	cases=$((cases + 1))
	if [ $status -ne "$1" ] || [ "$(tail -n 1 "$work/said")" != "$2" ] || ! grep -qF -- "$3" "$work/said"; then
		echo "test_script: presets '$4': exit status $status, expected $1, '$2' and '$3'; it said:"
		cat "$work/said"
		wrong=$((wrong + 1))
	fi
}

preset good good1 good2 good3
preset skips good1 may_be_skipped
preset none
preset silent good1 quietly_skipped
preset only_skips may_be_skipped
for bad in fails crashes aborts hangs absent; do
	preset $bad good1 $bad good2
done
preset all good1 fails crashes aborts hangs absent may_be_skipped quietly_skipped

expect 0 "3 passed, 0 failed, 0 skipped" "" good
expect 0 "4 passed, 0 failed, 1 skipped" "" "good skips"
expect 1 "2 passed, 1 failed, 0 skipped" "***Failed" fails
expect 1 "2 passed, 1 failed, 0 skipped" "***Exception: SegFault" crashes
expect 1 "2 passed, 1 failed, 0 skipped" "aborted***Exception" aborts
expect 1 "2 passed, 1 failed, 0 skipped" "***Timeout" hangs
expect 1 "2 passed, 1 failed, 0 skipped" "***Not Run" absent
expect 1 "1 passed, 6 failed, 1 skipped" "quietly_skipped was skipped and is not in" all
expect 1 "1 passed, 1 failed, 0 skipped" "quietly_skipped was skipped and is not in" silent
expect 1 "0 passed, 1 failed, 1 skipped" "no test has run" only_skips
expect 1 "3 passed, 1 failed, 0 skipped" "none: results of 0 tests" "good none"
expect 1 "0 passed, 1 failed, 0 skipped" "dies: results of 0 tests" dies
expect 1 "3 passed, 1 failed, 0 skipped" "preset skips does not build" "skips good" skips
expect 1 "0 passed, 1 failed, 0 skipped" "preset good does not build" good good
echo "test_script: $cases runs of tools/test.sh, $wrong wrong"
[ "$wrong" -eq 0 ]
