/* SPDX-License-Identifier: MIT */
/* A shared object that is no kernel library. */
int nothing_here(void);
int nothing_here(void)
{
	return 0;
}
