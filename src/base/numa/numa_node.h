/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NUMA nodes: which there are, and memory and threads on them.
 *
 * A daemon's own memory is bound to the nodes that its options name (struct soda_nodes).
 * Buffers that a network device reads and writes lie near the device: on its node, or on the node
 * that soda_node_choose has set for this process.  On a machine with one node, and where the system
 * calls are not allowed, only what an option asks for is placed.
 */
#ifndef SODA_BASE_NUMA_NODE_H
#define SODA_BASE_NUMA_NODE_H

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

/* The nodes with memory that this process may use; none if the kernel does not support NUMA. */
void soda_nodes_present(struct soda_nodes *nodes_p);
/* Write "0,2" to out; returns out. */
char *soda_nodes_format(const struct soda_nodes *nodes, char out[64]);

/*
 * text: NULL, "" or "off": anywhere; "1": that node; "0,2": those nodes, in turn, page by page;
 * "interleave": all nodes with memory.  0; -EINVAL, with the nodes that there are in err.
 */
int soda_nodes_parse(const char *text, struct soda_nodes *nodes_p, struct soda_conf_error *err);
/*
 * Bind the pages of a mapping to these nodes: all to one, or to several in turn; also for other
 * mappings of the same file.  The pages have not been touched yet. 0 or negative errno.
 */
int soda_nodes_place(const struct soda_nodes *nodes, void *memory, size_t bytes);
/* Prefer these nodes for pages that the calling thread, and threads that it starts, touch first. */
int soda_nodes_place_all(const struct soda_nodes *nodes);
/*
 * Let the calling thread, and threads that it starts, run on these nodes, if they have processors.
 */
int soda_nodes_run(const struct soda_nodes *nodes);

/* text: "auto", "off" or a node's number; errors as soda_nodes_parse. */
int soda_node_parse(const char *text, int *node_p, struct soda_conf_error *err);
/* Set for this process SODA_NODE_AUTO, SODA_NODE_ANY, or a node. Before there are connections. */
void soda_node_choose(int node);
/* The node for buffers of a device that is on device_node; or SODA_NODE_ANY. */
int soda_node_near(int device_node);
/* Prefer the node for the memory's pages; pages that were touched move. SODA_NODE_ANY: no-op. */
void soda_node_prefer(int node, void *memory, size_t bytes);
/* Let the calling thread run on the node. SODA_NODE_ANY, or a node without processors: no-op. */
void soda_node_run(int node);

/*
 * nic.c: the node of a network device, as sysfs tells it: the device's, that of a bus device above
 * it, or that of an interface below it (of a VLAN, a bond).  SODA_NODE_ANY: not known.
 */

/* The node of a device's directory in sysfs; symbolic links are followed. */
int soda_nic_node_of_path(const char *path);
/* The node of a network interface. */
int soda_nic_node_of_interface(const char *name);
/* The node, and the name, of the interface that has the local address of a connected socket. */
int soda_nic_node_of_socket(int fd, char name[SODA_DEVICE_NAME]);

#endif
