/* SPDX-License-Identifier: BSD-3-Clause */
/* The cgroup of --dpu-cpu. */
#include "bench_cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "soda-bench-"

/* Short, so that a capped agent does not stand still for long. */
enum { PERIOD_US = 10000, REMOVE_TRIES = 200, REMOVE_PAUSE_US = 10000 };

struct hierarchy {
	char dir[256]; /* its root */
	bool v2;
};

static int write_text(const char *dir, const char *file, const char *text)
{
	char path[768];
	int fd, err = 0;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		err = -errno;
	close(fd);
	return err;
}

static bool has_cpu(const char *dir)
{
	char path[512], words[512] = "";
	FILE *in;
	bool has = false;

	snprintf(path, sizeof(path), "%s/cgroup.controllers", dir);
	in = fopen(path, "r");
	if (!in)
		return false;
	if (fgets(words, sizeof(words), in)) {
		char *rest = words, *word;

		while ((word = strsep(&rest, " \n")))
			has |= strcmp(word, "cpu") == 0;
	}
	fclose(in);
	return has;
}

/* Where the cpu controller is. 0 or -ENOENT. */
static int find_hierarchy(struct hierarchy *found)
{
	FILE *mounts = setmntent("/proc/self/mounts", "r");
	struct mntent *m;
	bool done = false;

	while (mounts && !done && (m = getmntent(mounts))) {
		bool v2 = strcmp(m->mnt_type, "cgroup2") == 0;

		done = v2 ? has_cpu(m->mnt_dir)
			  : strcmp(m->mnt_type, "cgroup") == 0 && hasmntopt(m, "cpu");
		if (done) {
			snprintf(found->dir, sizeof(found->dir), "%s", m->mnt_dir);
			found->v2 = v2;
		}
	}
	if (mounts)
		endmntent(mounts);
	return done ? 0 : -ENOENT;
}

static int set_quota(const struct hierarchy *at, const char *dir, uint32_t pct)
{
	char text[64];
	int err;

	if (at->v2) {
		snprintf(text, sizeof(text), "%u %u", pct * PERIOD_US / 100, PERIOD_US);
		return write_text(dir, "cpu.max", text);
	}
	snprintf(text, sizeof(text), "%u", PERIOD_US);
	err = write_text(dir, "cpu.cfs_period_us", text);
	snprintf(text, sizeof(text), "%u", pct * PERIOD_US / 100);
	return err ? err : write_text(dir, "cpu.cfs_quota_us", text);
}

int soda_bench_cgroup_create(uint32_t pct, pid_t owner, struct soda_bench_cgroup *group)
{
	struct hierarchy at;
	int err = find_hierarchy(&at);

	if (!err && at.v2)
		err = write_text(at.dir, "cgroup.subtree_control", "+cpu");
	if (!err) {
		snprintf(group->path, sizeof(group->path), "%s/" PREFIX "%ld", at.dir, (long)owner);
		err = mkdir(group->path, 0755) ? -errno : set_quota(&at, group->path, pct);
	}
	if (err == -ENOENT && !group->path[0])
		fprintf(stderr, "soda bench: --dpu-cpu: no cgroup hierarchy here has the cpu "
				"controller\n");
	else if (err)
		fprintf(stderr, "soda bench: --dpu-cpu: cannot make a cgroup in %s: %s%s\n", at.dir,
			strerror(-err), err == -EACCES || err == -EPERM ? "; it needs root" : "");
	return err;
}

int soda_bench_cgroup_enter(void *arg)
{
	const struct soda_bench_cgroup *group = arg;
	int err = write_text(group->path, "cgroup.procs", "0");

	if (err)
		fprintf(stderr, "soda bench: --dpu-cpu: cannot enter %s: %s\n", group->path,
			strerror(-err));
	return err;
}

void soda_bench_cgroup_remove(pid_t owner)
{
	struct hierarchy at;
	char path[512];

	if (find_hierarchy(&at))
		return;
	snprintf(path, sizeof(path), "%s/" PREFIX "%ld", at.dir, (long)owner);
	for (int i = 0; i < REMOVE_TRIES && rmdir(path) && errno == EBUSY; i++)
		usleep(REMOVE_PAUSE_US);
}

void soda_bench_cgroup_sweep(void)
{
	struct hierarchy at;
	struct dirent *entry;
	DIR *dir = find_hierarchy(&at) ? NULL : opendir(at.dir);

	while (dir && (entry = readdir(dir))) {
		long owner;
		char more;

		if (sscanf(entry->d_name, PREFIX "%ld%c", &owner, &more) == 1 && owner > 0 &&
		    kill((pid_t)owner, 0) && errno == ESRCH)
			soda_bench_cgroup_remove((pid_t)owner);
	}
	if (dir)
		closedir(dir);
}
