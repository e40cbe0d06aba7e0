#!/bin/sh
# SPDX-License-Identifier: MIT
# Python tools compile and explain themselves without the packages they use; the callback of docs/golden-format.md compiles
# against the few names it needs. usage: test_python.sh SOURCE_DIR
set -eu
export PYTHONDONTWRITEBYTECODE=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
count=0
for tool in "$1"/tools/*.py; do
	python3 -c 'import py_compile, sys; py_compile.compile(sys.argv[1], cfile=sys.argv[2], doraise=True)' "$tool" "$work/x.pyc"
	python3 -S "$tool" --help >"$work/help" # -S: no installed package is there
	grep -q usage "$work/help"
	count=$((count + 1))
done
{
	cat <<'END'
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
enum ggml_type { GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_I32 = 26 };
struct ggml_tensor { enum ggml_type type; int64_t ne[4]; char name[64]; };
bool ggml_is_contiguous(const struct ggml_tensor *t);
size_t ggml_nbytes(const struct ggml_tensor *t);
void ggml_backend_tensor_get(const struct ggml_tensor *t, void *data, size_t offset, size_t size);
END
	awk '/^```c( |$)/ { on = 1; next } /^```/ { on = 0 } on' "$1/docs/golden-format.md"
	echo 'bool (*the_callback)(struct ggml_tensor *, bool, void *) = dump;'
} >"$work/callback.c"
${CC:-cc} -std=c11 -Wall -Wextra -Werror -fsyntax-only "$work/callback.c"
echo "$count Python tools compile"
[ "$count" -ge 2 ]
