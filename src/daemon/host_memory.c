/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads /proc/meminfo, memory cgroups and the pool of huge pages. */
#include "daemon/host_memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HUGE_POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/"
#define NODES "/sys/devices/system/node/node"
#define HUGE_BYTES (2ull << 20)

/* The number behind `key` at the start of a line of a file; without key the first one. */
static bool read_number(const char *path, const char *key, uint64_t *value_p)
{
	char line[256];
	bool found = false;
	FILE *file = fopen(path, "re");
	size_t n = key ? strlen(key) : 0;

	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file)) {
		char *end;

		if (n && strncmp(line, key, n))
			continue;
		*value_p = strtoull(line + n, &end, 10);
		found = end != line + n; /* "max" is no number */
	}
	fclose(file);
	return found;
}

struct cgroup_files {
	const char *root, *limit, *usage;
	const char
		*throttle; /* beyond it the kernel holds the group up; NULL: not in this version */
};

static const struct cgroup_files cgroup_v1 = {
	.root = "/sys/fs/cgroup/memory",
	.limit = "memory.limit_in_bytes",
	.usage = "memory.usage_in_bytes",
};
static const struct cgroup_files cgroup_v2 = {
	.root = "/sys/fs/cgroup",
	.limit = "memory.max",
	.usage = "memory.current",
	.throttle = "memory.high",
};

static uint64_t read_in_group(const struct cgroup_files *files, const char *group, const char *name,
			      const char *key, uint64_t otherwise)
{
	char path[512];
	uint64_t value;

	snprintf(path, sizeof(path), "%s%s/%s", files->root, group, name);
	return read_number(path, key, &value) ? value : otherwise;
}

static uint64_t limit_of_group(const struct cgroup_files *files, const char *group)
{
	return read_in_group(files, group, files->limit, NULL, UINT64_MAX);
}

/* The least of both limits: a server that is held up at each page is as good as silent. */
static uint64_t least_limit(const struct cgroup_files *files, const char *group)
{
	uint64_t limit = limit_of_group(files, group), throttle = UINT64_MAX;

	if (files->throttle)
		throttle = read_in_group(files, group, files->throttle, NULL, UINT64_MAX);
	return throttle < limit ? throttle : limit;
}

/* How much a cgroup may still use: its limit less what it uses, without its page cache. */
static uint64_t left_in_group(const struct cgroup_files *files, const char *group)
{
	uint64_t limit = least_limit(files, group);
	uint64_t used = read_in_group(files, group, files->usage, NULL, 0);
	uint64_t cache = read_in_group(files, group, "memory.stat", "active_file ", 0) +
			 read_in_group(files, group, "memory.stat", "inactive_file ", 0);

	used = used > cache ? used - cache : 0;
	return limit > used ? limit - used : 0;
}

typedef uint64_t ask_group(const struct cgroup_files *files, const char *group);

/*
 * The least of what the group and all groups above it say, the top among them: in a container that
 * is the container's own group, where version 1 tells the group's name as the host has it.  Cuts
 * the string `group`.
 */
static uint64_t least_of_groups(const struct cgroup_files *files, char *group, ask_group *ask)
{
	uint64_t least = ask(files, group);

	while (*group) {
		char *slash = strrchr(group, '/');
		uint64_t value;

		*(slash ? slash : group) = 0;
		value = ask(files, group);
		least = value < least ? value : least;
	}
	return least;
}

/* Lines of /proc/self/cgroup are "4:memory:/path" (v1) or "0::/path" (v2). */
static uint64_t least_of_own_groups(ask_group *ask)
{
	char line[400];
	uint64_t least = UINT64_MAX;
	FILE *file = fopen("/proc/self/cgroup", "re");

	while (file && fgets(line, sizeof(line), file)) {
		char *controllers = strchr(line, ':');
		char *group = controllers ? strchr(controllers + 1, ':') : NULL;
		uint64_t value;

		if (!group)
			continue;
		*group++ = 0;
		group[strcspn(group, "\n")] = 0;
		if (controllers[1] && strcmp(controllers + 1, "memory"))
			continue;
		value = least_of_groups(controllers[1] ? &cgroup_v1 : &cgroup_v2, group, ask);
		least = value < least ? value : least;
	}
	if (file)
		fclose(file);
	return least;
}

/* A node's free memory and page cache. */
static uint64_t left_on_node(unsigned node)
{
	static const char *const kinds[] = { "MemFree:", "Active(file):", "Inactive(file):" };
	uint64_t sum = 0, kib;
	char path[64], key[48];

	snprintf(path, sizeof(path), NODES "%u/meminfo", node);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		snprintf(key, sizeof(key), "Node %u %s", node, kinds[i]);
		if (read_number(path, key, &kib))
			sum += kib * 1024;
	}
	return sum;
}

static uint64_t huge_on_node(unsigned node)
{
	uint64_t pages = 0;
	char path[112];

	snprintf(path, sizeof(path), NODES "%u/hugepages/hugepages-2048kB/free_hugepages", node);
	return read_number(path, NULL, &pages) ? pages * HUGE_BYTES : 0;
}

static uint64_t sum_of(const struct soda_nodes *nodes, uint64_t (*on_node)(unsigned node))
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < SODA_NODES_MAX; i++)
		if (soda_nodes_has(nodes, i))
			sum += on_node(i);
	return sum;
}

uint64_t soda_host_memory_available(const struct soda_nodes *nodes)
{
	uint64_t kib = 0, least = least_of_own_groups(left_in_group);

	if (!read_number("/proc/meminfo", "MemAvailable:", &kib))
		return 0;
	least = kib * 1024 < least ? kib * 1024 : least;
	if (nodes->n) {
		uint64_t there = sum_of(nodes, left_on_node);

		least = there < least ? there : least;
	}
	return least;
}

uint64_t soda_host_memory_total(void)
{
	uint64_t kib = 0;

	read_number("/proc/meminfo", "MemTotal:", &kib);
	return kib * 1024;
}

uint64_t soda_host_memory_limit(void)
{
	return least_of_own_groups(limit_of_group);
}

uint64_t soda_host_memory_huge(const struct soda_nodes *nodes)
{
	uint64_t free_pages = 0, more = 0, surplus = 0;

	if (nodes->n)
		return sum_of(nodes, huge_on_node);
	if (!read_number(HUGE_POOL "free_hugepages", NULL, &free_pages))
		return 0;
	read_number(HUGE_POOL "nr_overcommit_hugepages", NULL, &more);
	read_number(HUGE_POOL "surplus_hugepages", NULL, &surplus);
	return (free_pages + (more > surplus ? more - surplus : 0)) * HUGE_BYTES;
}
