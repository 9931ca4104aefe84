/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/placement.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <numa.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "common/log.h"

static int nic_node = -1; /* set by soda_numa_detect, then constant */

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

/* The interface that has the socket's local address. */
static bool interface_of(int fd, char name[IF_NAMESIZE])
{
	struct sockaddr_storage local;
	socklen_t len = sizeof(local);
	struct ifaddrs *all;
	bool found = false;

	if (fd < 0 || getsockname(fd, (struct sockaddr *)&local, &len) || getifaddrs(&all))
		return false;
	for (struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
		found = same_address(i->ifa_addr, (struct sockaddr *)&local);
		if (found)
			snprintf(name, IF_NAMESIZE, "%s", i->ifa_name);
	}
	freeifaddrs(all);
	return found;
}

static int node_of(const char *interface)
{
	char path[96];
	int node = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/class/net/%s/device/numa_node", interface);
	f = fopen(path, "re");
	if (!f)
		return -1;
	if (fscanf(f, "%d", &node) != 1)
		node = -1;
	fclose(f);
	return node;
}

void soda_numa_detect(int socket_fd)
{
	char name[IF_NAMESIZE];

	if (numa_available() < 0 || numa_max_node() == 0) {
		soda_log_info("one NUMA node: nothing is bound");
		return;
	}
	if (interface_of(socket_fd, name))
		nic_node = node_of(name);
	if (nic_node < 0)
		soda_log_info("no network interface with a NUMA node: nothing is bound");
	else
		soda_log_info("threads and buffers on NUMA node %d, that of %s", nic_node, name);
}

void soda_numa_run_here(void)
{
	if (nic_node >= 0)
		numa_run_on_node(nic_node);
}

void soda_numa_place(void *addr, size_t bytes)
{
	if (nic_node >= 0)
		numa_tonode_memory(addr, bytes, nic_node);
}
