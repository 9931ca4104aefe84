/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/numa/numa_node.h"

#include <errno.h>
#include <numa.h>
#include <numaif.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BITS = 8 * sizeof(unsigned long) };

static int chosen = SODA_NODE_AUTO; /* by soda_node_choose */

static void add(struct soda_nodes *nodes, unsigned node)
{
	if (soda_nodes_has(nodes, node))
		return;
	nodes->bits[node / BITS] |= 1ul << node % BITS;
	nodes->n++;
}

void soda_nodes_present(struct soda_nodes *nodes_p)
{
	int max = numa_available() < 0 ? -1 : numa_max_node();

	memset(nodes_p, 0, sizeof(*nodes_p));
	for (int i = 0; i <= max && i < SODA_NODES_MAX; i++)
		if (numa_bitmask_isbitset(numa_all_nodes_ptr, (unsigned)i) &&
		    numa_node_size64(i, NULL) > 0)
			add(nodes_p, (unsigned)i);
}

char *soda_nodes_format(const struct soda_nodes *nodes, char out[64])
{
	size_t at = 0;

	out[0] = 0;
	for (unsigned i = 0; i < SODA_NODES_MAX && at < 56; i++)
		if (soda_nodes_has(nodes, i))
			at += (size_t)snprintf(out + at, 64 - at, at ? ",%u" : "%u", i);
	return out;
}

static int no_such_node(const char *text, const struct soda_nodes *present,
			struct soda_conf_error *err)
{
	char list[64];

	if (!present->n)
		return soda_conf_fail(err, -EINVAL,
				      "'%.64s' is wanted, but there is no NUMA here (a kernel "
				      "without it, or a container that may not use it)",
				      text);
	return soda_conf_fail(err, -EINVAL,
			      "there is no NUMA node %.64s here: those that have memory are %s",
			      text, soda_nodes_format(present, list));
}

/* Parse one number, up to a comma or the end. */
static int parse_one(const char **at, const struct soda_nodes *present, struct soda_nodes *nodes)
{
	char *end;
	unsigned long node = strtoul(*at, &end, 10);

	if (**at < '0' || **at > '9' || (*end && *end != ','))
		return -EINVAL;
	if (node >= SODA_NODES_MAX || !soda_nodes_has(present, (unsigned)node))
		return -ENOENT;
	add(nodes, (unsigned)node);
	*at = *end ? end + 1 : NULL;
	return 0;
}

int soda_nodes_parse(const char *text, struct soda_nodes *nodes_p, struct soda_conf_error *err)
{
	struct soda_nodes present, nodes = { .n = 0 };
	int ret = 0;

	if (!text || !*text || !strcmp(text, "off")) {
		*nodes_p = nodes;
		return 0;
	}
	soda_nodes_present(&present);
	if (!strcmp(text, "interleave"))
		nodes = present;
	else
		for (const char *at = text; at && !ret;)
			ret = parse_one(&at, &present, &nodes);
	if (ret == -EINVAL)
		return soda_conf_fail(
			err, ret,
			"'%.64s' is neither off, interleave, nor numbers of NUMA nodes (1 or 0,2)",
			text);
	if (ret || !nodes.n)
		return no_such_node(text, &present, err);
	*nodes_p = nodes;
	return 0;
}

int soda_nodes_place(const struct soda_nodes *nodes, void *memory, size_t bytes)
{
	if (!nodes->n || !bytes)
		return 0;
	/* + 1: the kernel uses one bit less than this number */
	return mbind(memory, bytes, nodes->n > 1 ? MPOL_INTERLEAVE : MPOL_BIND, nodes->bits,
		     SODA_NODES_MAX + 1, 0)
		       ? -errno
		       : 0;
}

int soda_nodes_place_all(const struct soda_nodes *nodes)
{
	if (!nodes->n)
		return 0;
	return set_mempolicy(nodes->n > 1 ? MPOL_INTERLEAVE : MPOL_PREFERRED, nodes->bits,
			     SODA_NODES_MAX + 1)
		       ? -errno
		       : 0;
}

static int has_processors(unsigned node)
{
	struct bitmask *cpus = numa_allocate_cpumask();
	int n = cpus && !numa_node_to_cpus((int)node, cpus) ? (int)numa_bitmask_weight(cpus) : 0;

	if (cpus)
		numa_free_cpumask(cpus);
	return n > 0;
}

int soda_nodes_run(const struct soda_nodes *nodes)
{
	struct bitmask *mask;
	int n = 0, ret = 0;

	if (!nodes->n)
		return 0;
	mask = numa_allocate_nodemask();
	if (!mask)
		return -ENOMEM;
	for (unsigned i = 0; i < SODA_NODES_MAX && i < mask->size; i++)
		if (soda_nodes_has(nodes, i) && has_processors(i)) {
			numa_bitmask_setbit(mask, i);
			n++;
		}
	if (n && numa_run_on_node_mask(mask))
		ret = -errno;
	numa_free_nodemask(mask);
	return ret;
}

int soda_node_parse(const char *text, int *node_p, struct soda_conf_error *err)
{
	struct soda_nodes nodes;
	int ret;

	if (!text || !*text || !strcmp(text, "auto") || !strcmp(text, "off")) {
		*node_p = text && !strcmp(text, "off") ? SODA_NODE_ANY : SODA_NODE_AUTO;
		return 0;
	}
	if (text[strspn(text, "0123456789")])
		return soda_conf_fail(err, -EINVAL,
				      "'%.64s' is neither auto, off, nor the number of a NUMA node",
				      text);
	ret = soda_nodes_parse(text, &nodes, err);
	if (ret == 0)
		*node_p = atoi(text);
	return ret;
}

void soda_node_choose(int node)
{
	chosen = node;
}

int soda_node_near(int device_node)
{
	struct soda_nodes present;

	if (chosen != SODA_NODE_AUTO)
		return chosen;
	if (device_node < 0 || device_node >= SODA_NODES_MAX)
		return SODA_NODE_ANY;
	soda_nodes_present(&present);
	return present.n > 1 && soda_nodes_has(&present, (unsigned)device_node) ? device_node
										: SODA_NODE_ANY;
}

void soda_node_prefer(int node, void *memory, size_t bytes)
{
	struct soda_nodes nodes = { .n = 0 };

	if (node < 0 || !bytes)
		return;
	add(&nodes, (unsigned)node);
	/* an error is ignored: the memory can be used on any node */
	mbind(memory, bytes, MPOL_PREFERRED, nodes.bits, SODA_NODES_MAX + 1, MPOL_MF_MOVE);
}

void soda_node_run(int node)
{
	if (node >= 0 && has_processors((unsigned)node))
		numa_run_on_node(node);
}
