/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a group may be made is a list of places, tried in their order. */
#include "soda/stage/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PLACES = 3, REMOVE_TRIES = 500, REMOVE_PAUSE_US = 10000 };
/* The period of a cap on CPU time: short, so that a capped process never waits for long. */
enum { PERIOD_US = 10000 };

enum kind { CPU, MEMORY, KINDS };

static const struct {
	const char *controller, *prefix;
} kinds[KINDS] = { [CPU] = { "cpu", "soda-bench-" }, [MEMORY] = { "memory", "soda-memory-" } };

/* Has files "mounts" and "cgroup". */
static const char *process = "/proc/self";

void soda_cgroup_look_in(const char *folder)
{
	process = folder;
}

static FILE *open_process_file(const char *name)
{
	char path[768];

	snprintf(path, sizeof(path), "%s/%s", process, name);
	return fopen(path, "r");
}

/* Where a group may be made. */
struct places {
	enum kind kind;
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

static bool find_mount(enum kind kind, int version, char *dir, size_t bytes)
{
	const char *controller = kinds[kind].controller;
	FILE *mounts = open_process_file("mounts");
	struct mntent *m;
	bool found = false;

	while (mounts && !found && (m = getmntent(mounts))) {
		if (version == 1)
			found = strcmp(m->mnt_type, "cgroup") == 0 && hasmntopt(m, controller);
		else
			found = strcmp(m->mnt_type, "cgroup2") == 0 &&
				has_word(m->mnt_dir, "cgroup.controllers", controller);
		if (found)
			snprintf(dir, bytes, "%s", m->mnt_dir);
	}
	if (mounts)
		fclose(mounts);
	return found;
}

/* The group of this process, as "/a/b" or "". */
static void find_own(int version, char *path, size_t bytes)
{
	FILE *in = open_process_file("cgroup");
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

/* Memory: below our own group, then beside it, then at the top. CPU time: at the top. */
static void find_places(enum kind kind, int version, struct places *places)
{
	char mount[128], own[512] = "";

	memset(places, 0, sizeof(*places));
	if (!find_mount(kind, version, mount, sizeof(mount)))
		return;
	places->kind = kind;
	places->version = version;
	if (kind == MEMORY)
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

/* Version 2: let groups at this place use the controller. */
static int let_through(const struct places *places, int i)
{
	const char *controller = kinds[places->kind].controller;
	char text[32];

	if (places->version == 1 || has_word(places->dir[i], "cgroup.subtree_control", controller))
		return 0;
	snprintf(text, sizeof(text), "+%s", controller);
	return write_text(places->dir[i], "cgroup.subtree_control", text);
}

/* What a group may have. */
struct limit {
	uint64_t bytes;
	uint32_t cpu_pct;
	bool swap;
};

static int limit_cpu(const struct soda_cgroup *group, uint32_t pct)
{
	char text[64];
	int err;

	if (group->version == 2) {
		snprintf(text, sizeof(text), "%u %u", pct * PERIOD_US / 100, PERIOD_US);
		return write_text(group->dir, "cpu.max", text);
	}
	err = write_number(group->dir, "cpu.cfs_period_us", PERIOD_US);
	return err ? err : write_number(group->dir, "cpu.cfs_quota_us", pct * PERIOD_US / 100);
}

static int limit_memory(const struct soda_cgroup *group, uint64_t bytes, bool swap)
{
	bool v1 = group->version == 1;
	int err = write_number(group->dir, v1 ? "memory.limit_in_bytes" : "memory.max", bytes);

	if (err || swap)
		return err;
	if (v1) /* only where swap is accounted for */
		write_number(group->dir, "memory.memsw.limit_in_bytes", bytes);
	else
		write_number(group->dir, "memory.swap.max", 0);
	return 0;
}

/* May a process enter? */
static int try_enter(const struct soda_cgroup *group)
{
	char path[768];

	snprintf(path, sizeof(path), "%s/cgroup.procs", group->dir);
	return access(path, W_OK) ? -errno : 0;
}

static void name_group(const struct places *places, int i, pid_t owner, struct soda_cgroup *group)
{
	group->version = places->version;
	snprintf(group->dir, sizeof(group->dir), "%s/%s%ld", places->dir[i],
		 kinds[places->kind].prefix, (long)owner);
}

static int make_at(const struct places *places, int i, const struct limit *limit, pid_t owner,
		   struct soda_cgroup *group)
{
	int err = let_through(places, i);

	if (err)
		return err;
	name_group(places, i, owner, group);
	if (mkdir(group->dir, 0755) && errno != EEXIST)
		return -errno;
	err = places->kind == CPU ? limit_cpu(group, limit->cpu_pct)
				  : limit_memory(group, limit->bytes, limit->swap);
	if (!err)
		err = try_enter(group);
	if (err)
		rmdir(group->dir);
	return err;
}

static int open_group(enum kind kind, const struct limit *limit, pid_t owner,
		      struct soda_cgroup *group_p)
{
	struct soda_cgroup group;
	struct places places;
	int err = -ENOENT;

	for (int version = 1; version <= 2; version++) {
		find_places(kind, version, &places);
		for (int i = 0; i < places.n; i++) {
			err = make_at(&places, i, limit, owner, &group);
			if (!err) {
				*group_p = group;
				return 0;
			}
		}
	}
	return err;
}

int soda_cgroup_open_cpu(uint32_t pct, pid_t owner, struct soda_cgroup *group_p)
{
	return open_group(CPU, &(struct limit){ .cpu_pct = pct }, owner, group_p);
}

int soda_cgroup_open_memory(uint64_t bytes, bool swap, pid_t owner, struct soda_cgroup *group_p)
{
	return open_group(MEMORY, &(struct limit){ .bytes = bytes, .swap = swap }, owner, group_p);
}

int soda_cgroup_enter(const struct soda_cgroup *group)
{
	return group->version ? write_text(group->dir, "cgroup.procs", "0") : 0;
}

uint64_t soda_cgroup_oom_kills(const struct soda_cgroup *group)
{
	unsigned long long kills = 0, value;
	char path[768], key[64];
	FILE *in;

	if (!group->version)
		return 0;
	snprintf(path, sizeof(path), "%s/%s", group->dir,
		 group->version == 1 ? "memory.oom_control" : "memory.events");
	in = fopen(path, "r");
	while (in && fscanf(in, "%63s %llu", key, &value) == 2)
		if (strcmp(key, "oom_kill") == 0)
			kills = value;
	if (in)
		fclose(in);
	return kills;
}

void soda_cgroup_close(struct soda_cgroup *group)
{
	if (!group->version)
		return;
	for (int i = 0; i < REMOVE_TRIES && rmdir(group->dir) && errno == EBUSY; i++)
		usleep(REMOVE_PAUSE_US);
	group->version = 0;
}

/* fn for each place of each kind. */
static void each_place(void (*fn)(const struct places *places, int i, pid_t owner), pid_t owner)
{
	struct places places;

	for (int kind = 0; kind < KINDS; kind++)
		for (int version = 1; version <= 2; version++) {
			find_places((enum kind)kind, version, &places);
			for (int i = 0; i < places.n; i++)
				fn(&places, i, owner);
		}
}

static void remove_at(const struct places *places, int i, pid_t owner)
{
	struct soda_cgroup group;

	name_group(places, i, owner, &group);
	if (access(group.dir, F_OK) == 0)
		soda_cgroup_close(&group);
}

void soda_cgroup_remove(pid_t owner)
{
	each_place(remove_at, owner);
}

static void sweep_at(const struct places *places, int i, pid_t unused)
{
	const char *prefix = kinds[places->kind].prefix;
	DIR *dir = opendir(places->dir[i]);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		const char *number = entry->d_name + strlen(prefix);
		long owner;
		char more;

		if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 &&
		    sscanf(number, "%ld%c", &owner, &more) == 1 && owner > 0 &&
		    kill((pid_t)owner, 0) && errno == ESRCH)
			remove_at(places, i, (pid_t)owner);
	}
	if (dir)
		closedir(dir);
}

void soda_cgroup_sweep(void)
{
	each_place(sweep_at, 0);
}
