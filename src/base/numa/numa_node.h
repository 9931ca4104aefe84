/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NUMA nodes: which there are, and memory and threads on them.
 *
 * A daemon's own memory is bound to nodes that somebody has chosen (struct soda_nodes).
 * Buffers that a network device reads and writes lie near it: on its node, or where
 * soda_node_choose has said for this process.  On a machine of one node, and where the
 * system calls are not allowed, nothing is placed unless it was asked for.
 */
#ifndef SODA_COMMON_NUMA_NODE_H
#define SODA_COMMON_NUMA_NODE_H

#include <stddef.h>
#include <stdint.h>

#include "base/conf/conf.h"

enum { SODA_DEVICE_NAME = 64 }; /* bytes of a network device's name */

enum {
	SODA_NODES_MAX = 1024,
	SODA_NODE_ANY = -1, /* not known, or not bound */
	SODA_NODE_AUTO = -2,
};

/* A set of nodes; n 0: anywhere. */
struct soda_nodes {
	unsigned long bits[SODA_NODES_MAX / (8 * sizeof(unsigned long))];
	unsigned n;
};

static inline int soda_nodes_has(const struct soda_nodes *nodes, unsigned node)
{
	enum { BITS = 8 * sizeof(unsigned long) };

	return nodes->bits[node / BITS] >> node % BITS & 1;
}

/* Nodes that have memory which this process may use. None where NUMA is not to be had. */
void soda_nodes_present(struct soda_nodes *nodes_p);
/* "0,2" into out, which it returns. */
char *soda_nodes_format(const struct soda_nodes *nodes, char out[64]);

/*
 * NULL, "" or "off": anywhere; "1": that node; "0,2": those, in turn, page by page;
 * "interleave": all that have memory.  0; -EINVAL, and which nodes there are in err.
 */
int soda_nodes_parse(const char *text, struct soda_nodes *nodes_p, struct soda_conf_error *err);
/*
 * The pages of this mapping come from these nodes only (one), or in turn (several), also
 * for other mappings of the same file; not yet touched. 0 or negative errno.
 */
int soda_nodes_place(const struct soda_nodes *nodes, void *memory, size_t bytes);
/* The same as a wish, for all that the calling thread, and those that it starts, touch first. */
int soda_nodes_place_all(const struct soda_nodes *nodes);
/* The calling thread, and those that it starts, run there; nodes without processors do not count.
 */
int soda_nodes_run(const struct soda_nodes *nodes);

/* "auto", "off" or a node's number; errors as soda_nodes_parse. */
int soda_node_parse(const char *text, int *node_p, struct soda_conf_error *err);
/* For this process: SODA_NODE_AUTO, SODA_NODE_ANY, or a node. Before there are connections. */
void soda_node_choose(int node);
/* Where buffers of a device on this node lie: a node, or SODA_NODE_ANY. */
int soda_node_near(int device_node);
/* Its pages come from there as long as there are some; what was touched moves. ANY: no-op. */
void soda_node_prefer(int node, void *memory, size_t bytes);
/* The calling thread runs there. ANY, or a node without processors: no-op. */
void soda_node_run(int node);

/*
 * nic.c: the node of a network device, as sysfs tells it: of the device, of the bus devices that
 * it hangs from, or of what lies below it (a VLAN, a bond).  SODA_NODE_ANY: not known.
 */

/* A directory of sysfs, links followed. */
int soda_nic_node_of_path(const char *path);
/* A network interface. */
int soda_nic_node_of_interface(const char *name);
/* The interface that has the local address of a connected socket, and its name. */
int soda_nic_node_of_socket(int fd, char name[SODA_DEVICE_NAME]);

#endif
