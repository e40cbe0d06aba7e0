/* SPDX-License-Identifier: MIT */
/* For test_resources.sh: no kernel at all; a file of which the compiler says nothing is not a good one. */
