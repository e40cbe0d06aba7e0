#!/bin/sh
# SPDX-License-Identifier: MIT
# The cases that ship (golden/cases) run again: by the reference's twin and by the opt set on simt, every bit.
#   test_cases.sh PROGRAM SOURCE          replay them
#   test_cases.sh PROGRAM SOURCE make     make them anew, from golden/tiny and its quantised sisters
set -eu
program=$1
cd "$2"

# make NAME GOLDEN OP[@LAYER]:POSITION [options]: the case of one call of the op; position 60 is a decoded token.
make() {
	name=$1 golden=$2 call=$3
	shift 3
	"$program" bisect "golden/$golden/$golden.h5" --checkpoint "golden/$golden/checkpoint" --op "${call%%[@:]*}=opt" --call "$call" \
		--case "golden/cases/$name.h5" "$@"
}

if [ "${3:-}" = make ]; then
	mkdir -p golden/cases
	make embed tiny embed:60
	make ple_embed tiny ple_embed@1:60
	make hc_up_mix tiny hc_up_mix@1:60
	make gdn_recurrence tiny gdn_recurrence@1:60
	make attn_decode tiny attn_decode@3:60
	make attn_qk_rope_bf16 tiny attn_qk_rope@3:60 --policy bf16 --page-seed 3
	make qsa_project tiny qsa_project@3:59
	make qsa_select tiny qsa_select@3:60
	make moe_router tiny moe_router@2:60
	make moe_gate_up_nvfp4 tiny-nvfp4 moe_gate_up@2:5 --rows 1
	make moe_down_fp8 tiny-fp8 moe_down@2:5 --rows 1
	make argmax tiny argmax:60
	exit 0
fi
"$program" replay golden/cases/*.h5
"$program" replay golden/cases/*.h5 --set opt --seed 5
"$program" replay golden/cases/*.h5 --set opt --guard
