/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory cgroup of a compute node. */
#include "eval_cap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "soda-eval-"

enum { PLACES = 3, REMOVE_TRIES = 500, REMOVE_PAUSE_US = 10000 };

/* Where a group may be made. */
struct places {
	int version;
	int n;
	char dir[PLACES][640];
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

static int write_number(const char *dir, const char *file, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return write_text(dir, file, text);
}

static bool has_word(const char *dir, const char *file, const char *wanted)
{
	char path[768], words[512] = "", *rest = words, *word;
	bool has = false;
	FILE *in;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	in = fopen(path, "r");
	if (!in)
		return false;
	if (fgets(words, sizeof(words), in))
		while ((word = strsep(&rest, " \n")))
			has |= strcmp(word, wanted) == 0;
	fclose(in);
	return has;
}

static bool find_mount(int version, char *dir, size_t bytes)
{
	FILE *mounts = setmntent("/proc/self/mounts", "r");
	struct mntent *m;
	bool found = false;

	while (mounts && !found && (m = getmntent(mounts))) {
		found = version == 2 ? strcmp(m->mnt_type, "cgroup2") == 0
				     : strcmp(m->mnt_type, "cgroup") == 0 && hasmntopt(m, "memory");
		if (found)
			snprintf(dir, bytes, "%s", m->mnt_dir);
	}
	if (mounts)
		endmntent(mounts);
	return found;
}

/* Our own group, as "/a/b" or "". */
static void find_own(int version, char *path, size_t bytes)
{
	FILE *in = fopen("/proc/self/cgroup", "r");
	char line[512], *rest, *controllers, *own, *word;

	*path = 0;
	while (in && fgets(line, sizeof(line), in)) {
		bool ours;

		rest = line;
		strsep(&rest, ":");
		controllers = strsep(&rest, ":");
		own = rest ? rest : line;
		own[strcspn(own, "\n")] = 0;
		ours = version == 2 && controllers && !*controllers;
		while (version == 1 && controllers && (word = strsep(&controllers, ",")))
			ours |= strcmp(word, "memory") == 0;
		if (ours && strcmp(own, "/") != 0)
			snprintf(path, bytes, "%s", own);
	}
	if (in)
		fclose(in);
}

/* Below our own group, then beside it, then at the top. */
static void find_places(int version, struct places *places)
{
	char mount[128], own[512];

	memset(places, 0, sizeof(*places));
	if (!find_mount(version, mount, sizeof(mount)))
		return;
	places->version = version;
	find_own(version, own, sizeof(own));
	for (;;) {
		snprintf(places->dir[places->n++], sizeof(places->dir[0]), "%s%s", mount, own);
		if (!*own)
			return;
		if (places->n == PLACES - 1)
			*own = 0;
		else
			*strrchr(own, '/') = 0;
	}
}

/* Version 2 hands the controller on only if told to. */
static int let_through(const struct places *places, int i)
{
	if (places->version == 1 || has_word(places->dir[i], "cgroup.subtree_control", "memory"))
		return 0;
	return write_text(places->dir[i], "cgroup.subtree_control", "+memory");
}

static int limit(const struct soda_eval_cap *cap, uint64_t bytes)
{
	int err;

	if (cap->version == 1) {
		err = write_number(cap->dir, "memory.limit_in_bytes", bytes);
		if (!err) /* only where swap is accounted for */
			write_number(cap->dir, "memory.memsw.limit_in_bytes", bytes);
		return err;
	}
	err = write_number(cap->dir, "memory.max", bytes);
	if (!err)
		write_number(cap->dir, "memory.swap.max", 0);
	return err;
}

/* May a process enter?  A child tries. */
static int try_enter(const struct soda_eval_cap *cap)
{
	char path[768];

	snprintf(path, sizeof(path), "%s/cgroup.procs", cap->dir);
	return access(path, W_OK) ? -errno : 0;
}

static int make_at(const struct places *places, int i, uint64_t bytes, pid_t owner,
		   struct soda_eval_cap *cap)
{
	int err = let_through(places, i);

	if (err)
		return err;
	cap->version = places->version;
	snprintf(cap->dir, sizeof(cap->dir), "%s/" PREFIX "%ld", places->dir[i], (long)owner);
	if (mkdir(cap->dir, 0755) && errno != EEXIST)
		return -errno;
	err = limit(cap, bytes);
	if (!err)
		err = try_enter(cap);
	if (err)
		rmdir(cap->dir);
	return err;
}

int soda_eval_cap_open(uint64_t bytes, pid_t owner, struct soda_eval_cap *cap_p)
{
	struct soda_eval_cap cap;
	struct places places;
	int err = -ENOENT;

	for (int version = 1; version <= 2; version++) {
		find_places(version, &places);
		for (int i = 0; i < places.n; i++) {
			err = make_at(&places, i, bytes, owner, &cap);
			if (!err) {
				*cap_p = cap;
				return 0;
			}
		}
	}
	return err;
}

int soda_eval_cap_enter(const struct soda_eval_cap *cap)
{
	return cap->version ? write_text(cap->dir, "cgroup.procs", "0") : 0;
}

uint64_t soda_eval_cap_oom_kills(const struct soda_eval_cap *cap)
{
	unsigned long long kills = 0, value;
	char path[768], key[64];
	FILE *in;

	if (!cap->version)
		return 0;
	snprintf(path, sizeof(path), "%s/%s", cap->dir,
		 cap->version == 1 ? "memory.oom_control" : "memory.events");
	in = fopen(path, "r");
	while (in && fscanf(in, "%63s %llu", key, &value) == 2)
		if (strcmp(key, "oom_kill") == 0)
			kills = value;
	if (in)
		fclose(in);
	return kills;
}

void soda_eval_cap_close(struct soda_eval_cap *cap)
{
	if (!cap->version)
		return;
	for (int i = 0; i < REMOVE_TRIES && rmdir(cap->dir) && errno == EBUSY; i++)
		usleep(REMOVE_PAUSE_US);
	cap->version = 0;
}

void soda_eval_cap_remove(pid_t owner)
{
	for (int version = 1; version <= 2; version++) {
		struct soda_eval_cap cap;
		struct places places;

		find_places(version, &places);
		for (int i = 0; i < places.n; i++) {
			snprintf(cap.dir, sizeof(cap.dir), "%s/" PREFIX "%ld", places.dir[i],
				 (long)owner);
			cap.version = access(cap.dir, F_OK) == 0 ? version : 0;
			soda_eval_cap_close(&cap);
		}
	}
}

static void sweep(const char *place)
{
	struct dirent *entry;
	DIR *dir = opendir(place);

	while (dir && (entry = readdir(dir))) {
		long owner;
		char more;

		if (sscanf(entry->d_name, PREFIX "%ld%c", &owner, &more) == 1 && owner > 0 &&
		    kill((pid_t)owner, 0) && errno == ESRCH)
			soda_eval_cap_remove((pid_t)owner);
	}
	if (dir)
		closedir(dir);
}

void soda_eval_cap_sweep(void)
{
	for (int version = 1; version <= 2; version++) {
		struct places places;

		find_places(version, &places);
		for (int i = 0; i < places.n; i++)
			sweep(places.dir[i]);
	}
}
