/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/numa/numa_node.h"

#include <dirent.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { BELOW_MAX = 4 }; /* interfaces below interfaces */

static int read_node(const char *dir)
{
	char path[PATH_MAX + 16];
	int node = SODA_NODE_ANY;
	FILE *f;

	snprintf(path, sizeof(path), "%s/numa_node", dir);
	f = fopen(path, "re");
	if (!f)
		return SODA_NODE_ANY;
	if (fscanf(f, "%d", &node) != 1 || node < 0)
		node = SODA_NODE_ANY;
	fclose(f);
	return node;
}

int soda_nic_node_of_path(const char *path)
{
	char at[PATH_MAX], *slash;
	int node = SODA_NODE_ANY;

	if (!realpath(path, at))
		return node;
	while (node < 0 && (slash = strrchr(at, '/')) && slash != at) {
		node = read_node(at);
		*slash = 0;
	}
	return node;
}

static int node_of_interface(const char *name, int depth)
{
	char path[300];
	struct dirent *e;
	int node;
	DIR *dir;

	snprintf(path, sizeof(path), "/sys/class/net/%.200s/device", name);
	node = soda_nic_node_of_path(path);
	if (node >= 0 || depth == BELOW_MAX)
		return node;
	snprintf(path, sizeof(path), "/sys/class/net/%.200s", name);
	dir = opendir(path);
	while (dir && node < 0 && (e = readdir(dir)))
		if (!strncmp(e->d_name, "lower_", 6))
			node = node_of_interface(e->d_name + 6, depth + 1);
	if (dir)
		closedir(dir);
	return node;
}

int soda_nic_node_of_interface(const char *name)
{
	return strchr(name, '/') ? SODA_NODE_ANY : node_of_interface(name, 0);
}

static bool same_address(const struct sockaddr *a, const struct sockaddr *b)
{
	if (!a || a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return !memcmp(&((const struct sockaddr_in *)a)->sin_addr,
			       &((const struct sockaddr_in *)b)->sin_addr, sizeof(struct in_addr));
	if (a->sa_family == AF_INET6)
		return !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
			       &((const struct sockaddr_in6 *)b)->sin6_addr,
			       sizeof(struct in6_addr));
	return false;
}

int soda_nic_node_of_socket(int fd, char name[SODA_DEVICE_NAME])
{
	struct sockaddr_storage local;
	socklen_t len = sizeof(local);
	struct ifaddrs *all;
	bool found = false;

	if (fd < 0 || getsockname(fd, (struct sockaddr *)&local, &len) || getifaddrs(&all))
		return SODA_NODE_ANY;
	for (struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
		found = same_address(i->ifa_addr, (struct sockaddr *)&local);
		if (found)
			snprintf(name, SODA_DEVICE_NAME, "%s", i->ifa_name);
	}
	freeifaddrs(all);
	return found ? soda_nic_node_of_interface(name) : SODA_NODE_ANY;
}
