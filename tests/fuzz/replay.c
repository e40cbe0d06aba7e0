/* SPDX-License-Identifier: MIT */
/* main of a fuzz target without libFuzzer: runs every file of the folders and every file it is given, in order of name.
 * No file at all is a failure. usage: fuzz_NAME CORPUS... */
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/fuzz/fuzz.h"

static int run(const char *path)
{
	FILE *f = fopen(path, "rb");
	struct stat st;

	if (!f || fstat(fileno(f), &st) != 0) {
		perror(path);
		return -1;
	}
	size_t size = (size_t)st.st_size;
	uint8_t *data = malloc(size ? size : 1); /* of this size, so that a read past its end shows */
	bool whole = data && fread(data, 1, size, f) == size;

	fclose(f);
	if (whole) {
		printf("%s\n", path);
		fflush(stdout);
		LLVMFuzzerTestOneInput(data, size);
	}
	free(data);
	return whole ? 1 : -1;
}

static int run_folder(const char *path)
{
	struct dirent **entry;
	int n = scandir(path, &entry, NULL, alphasort), ran = 0;

	for (int i = 0; i < n; i++) {
		char file[1024];

		snprintf(file, sizeof file, "%s/%s", path, entry[i]->d_name);
		if (entry[i]->d_name[0] != '.' && ran >= 0) {
			int status = run(file);
			ran = status < 0 ? -1 : ran + status;
		}
		free(entry[i]);
	}
	if (n >= 0)
		free(entry);
	return n < 0 ? -1 : ran;
}

int main(int argc, char **argv)
{
	int ran = 0;

	for (int i = 1; i < argc && ran >= 0; i++) {
		struct stat st;
		int n = stat(argv[i], &st) != 0 ? -1 : S_ISDIR(st.st_mode) ? run_folder(argv[i]) : run(argv[i]);

		ran = n < 0 ? -1 : ran + n;
	}
	printf("%d inputs\n", ran);
	return ran > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
