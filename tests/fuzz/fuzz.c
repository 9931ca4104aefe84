/* SPDX-License-Identifier: BSD-3-Clause */
#include "fuzz/fuzz.h"

#include <fcntl.h>
#include <ftw.h>
#include <unistd.h>

#include "base/log.h"

static char own_dir[128];
static pid_t owner;

__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static void remove_dir(void)
{
	if (getpid() == owner)
		nftw(own_dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static const char *place(void)
{
	if (getenv("TMPDIR"))
		return getenv("TMPDIR");
	return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}

/* A fuzzer that finds something, or is ended, runs no exit handler: `run` removes it then. */
static void make_dir(void)
{
	MUST((size_t)snprintf(own_dir, sizeof(own_dir), "%s/soda-fuzz-XXXXXX", place()) <
	     sizeof(own_dir));
	MUST(mkdtemp(own_dir));
	owner = getpid();
	atexit(remove_dir);
}

const char *fuzz_path(const char *name, char out[256])
{
	if (!own_dir[0])
		make_dir();
	snprintf(out, 256, "%s/%s", own_dir, name);
	return out;
}

void fuzz_write(const char *path, const void *data, size_t bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	MUST(fd >= 0);
	MUST(write(fd, data, bytes) == (ssize_t)bytes);
	close(fd);
}

static void nowhere(int level, const char *message, void *arg)
{
}

void fuzz_quiet(void)
{
	soda_log_setup("fuzz", SODA_LOG_LVL_DEBUG, nowhere, NULL);
}
