/* SPDX-License-Identifier: BSD-3-Clause */
/* The directory that the fixtures' servers export. */
#include <sys/stat.h>
#include <unistd.h>

#include "calls.h"

const char *fuzz_export_dir(void)
{
	static char dir[256];
	char path[300];

	if (dir[0])
		return dir;
	fuzz_path("export", dir);
	FUZZ_MUST(mkdir(dir, 0700) == 0);
	snprintf(path, sizeof(path), "%s/sub", dir);
	FUZZ_MUST(mkdir(path, 0700) == 0);
	snprintf(path, sizeof(path), "%s/link", dir);
	FUZZ_MUST(symlink("../../../etc/passwd", path) == 0);
	return dir;
}

void fuzz_export_restore(void)
{
	static const char text[10000] = "content";
	static const struct {
		const char *name;
		size_t bytes;
	} files[] = {
		{ "small", 10000 }, { "large", 3 << 20 }, { "empty", 0 }, { "sub/deep", 5000 }
	};
	char path[300];
	struct stat st;

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		snprintf(path, sizeof(path), "%s/%s", fuzz_export_dir(), files[i].name);
		if (stat(path, &st) == 0 && (size_t)st.st_size == files[i].bytes)
			continue;
		fuzz_write(path, text, files[i].bytes < sizeof(text) ? files[i].bytes : 0);
		FUZZ_MUST(truncate(path, (off_t)files[i].bytes) == 0);
	}
	snprintf(path, sizeof(path), "%s/absent", fuzz_export_dir());
	unlink(path);
}
