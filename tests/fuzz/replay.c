/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The main of a target without a fuzzer: every input of its corpus, one test case each.
 *   fuzz_TARGET DIR|FILE...
 */
#include <dirent.h>
#include <sys/stat.h>

#include "fuzz/fuzz.h"

static unsigned replayed;

static void replay(const char *path)
{
	const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	FILE *in = fopen(path, "rb");
	struct stat st;
	uint8_t *data;

	MUST(in && fstat(fileno(in), &st) == 0);
	/* exactly as large as the input: what reads beyond it is seen */
	data = malloc((size_t)st.st_size + !st.st_size);
	MUST(data && fread(data, 1, (size_t)st.st_size, in) == (size_t)st.st_size);
	fclose(in);
	printf("[ RUN      ] %s\n", name);
	fflush(stdout);
	LLVMFuzzerTestOneInput(data, (size_t)st.st_size);
	printf("[       OK ] %s\n", name);
	fflush(stdout);
	free(data);
	replayed++;
}

static int is_input(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static void replay_all(const char *dir)
{
	struct dirent **entries;
	int n = scandir(dir, &entries, is_input, alphasort);
	char path[4096];

	MUST(n >= 0);
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, entries[i]->d_name);
		replay(path);
		free(entries[i]);
	}
	free(entries);
}

int main(int argc, char **argv)
{
	struct stat st;

	LLVMFuzzerInitialize(&argc, &argv);
	LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
	for (int i = 1; i < argc; i++) {
		MUST(stat(argv[i], &st) == 0);
		if (S_ISDIR(st.st_mode))
			replay_all(argv[i]);
		else
			replay(argv[i]);
	}
	if (!replayed) {
		fprintf(stderr, "no inputs\n");
		return 1;
	}
	return 0;
}
