/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NUMA nodes: as text, as the policy of a mapping, and of devices as sysfs has them.  What
 * needs more than one node is tests/rdma_guest/test_numa.c.
 */
#include <errno.h>
#include <numaif.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/numa/numa_node.h"
#include "mem_server/store/store.h"

#define MIB (1ull << 20)

static struct soda_nodes present;
static struct soda_conf_error err;

static int needs_numa(void **state)
{
	if (present.n)
		return 0;
	printf("SKIP: there is no NUMA here, or it may not be used\n");
	fflush(stdout);
	skip();
	return 0;
}

static unsigned first(void)
{
	unsigned node = 0;

	while (!soda_nodes_has(&present, node))
		node++;
	return node;
}

static void check_nodes_text(void **state)
{
	struct soda_nodes nodes;
	char one[16], list[64];

	assert_int_equal(soda_nodes_parse(NULL, &nodes, &err), 0);
	assert_int_equal(nodes.n, 0);
	assert_int_equal(soda_nodes_parse("off", &nodes, &err), 0);
	assert_int_equal(nodes.n, 0);
	assert_int_equal(soda_nodes_parse("interleave", &nodes, &err), 0);
	assert_memory_equal(&nodes, &present, sizeof(nodes));
	assert_int_equal(soda_nodes_parse(soda_nodes_format(&present, list), &nodes, &err), 0);
	assert_memory_equal(&nodes, &present, sizeof(nodes));
	snprintf(one, sizeof(one), "%u", first());
	assert_int_equal(soda_nodes_parse(one, &nodes, &err), 0);
	assert_int_equal(nodes.n, 1);
	assert_true(soda_nodes_has(&nodes, first()));
}

/* What is wrong, and what there is. */
static void check_wrong_text(void **state)
{
	static const char *const bad[] = { "left", "-1", "0,", ",0", "0;1", "1k", " 0" };
	struct soda_nodes nodes = { .n = 77 };
	char list[64];
	int node = 77;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(soda_nodes_parse(bad[i], &nodes, &err), -EINVAL);
		assert_int_equal(soda_node_parse(bad[i], &node, &err), -EINVAL);
	}
	assert_int_equal(soda_nodes_parse("1023", &nodes, &err), -EINVAL);
	assert_non_null(strstr(err.text, "1023"));
	if (present.n)
		assert_non_null(strstr(err.text, soda_nodes_format(&present, list)));
	assert_int_equal(soda_nodes_parse("99999999999999999999", &nodes, &err), -EINVAL);
	assert_int_equal(soda_node_parse("1023", &node, &err), -EINVAL);
	assert_int_equal(nodes.n, 77);
	assert_int_equal(node, 77);
}

static void check_choice(void **state)
{
	int node = 77;

	assert_int_equal(soda_node_parse("auto", &node, &err), 0);
	assert_int_equal(node, SODA_NODE_AUTO);
	assert_int_equal(soda_node_parse("off", &node, &err), 0);
	assert_int_equal(node, SODA_NODE_ANY);
	assert_int_equal(soda_node_near(SODA_NODE_ANY), SODA_NODE_ANY);
	assert_int_equal(soda_node_near(1022), SODA_NODE_ANY);
	if (present.n == 1) /* nothing is bound where there is nothing to choose */
		assert_int_equal(soda_node_near((int)first()), SODA_NODE_ANY);
	soda_node_choose(3);
	assert_int_equal(soda_node_near(0), 3);
	soda_node_choose(SODA_NODE_ANY);
	assert_int_equal(soda_node_near(0), SODA_NODE_ANY);
	soda_node_choose(SODA_NODE_AUTO);
}

/* The policy that the kernel has for an address, and its only node. */
static void expect_policy(void *at, int wanted)
{
	unsigned long bits[SODA_NODES_MAX / 64] = { 0 };
	int mode = -1;

	assert_return_code(get_mempolicy(&mode, bits, SODA_NODES_MAX, at, MPOL_F_ADDR), errno);
	assert_int_equal(mode, wanted);
	assert_true(bits[first() / 64] >> first() % 64 & 1);
}

static void *map(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static void check_buffers(void **state)
{
	void *p = map(MIB), *page = p;
	int status = -1;

	soda_node_prefer(SODA_NODE_ANY, p, MIB);
	soda_node_prefer((int)first(), p, MIB);
	expect_policy(p, MPOL_PREFERRED);
	memset(p, 1, MIB);
	assert_return_code(move_pages(0, 1, &page, NULL, &status, 0), errno);
	assert_int_equal(status, first());
	munmap(p, MIB);
}

/* The server's memory, shared and not, is bound; and of shared memory every mapping is. */
static void check_store(void **state)
{
	struct soda_memory_options opt = { .bytes = 4 * MIB, .dirty_map = true, .populate = true };
	struct soda_memory memory;
	struct soda_store store;
	struct soda_why why;
	char one[16];
	void *again;

	soda_store_init(&store, 64 * MIB);
	snprintf(one, sizeof(one), "%u", first());
	assert_int_equal(soda_nodes_parse(one, &store.nodes, &err), 0);
	assert_int_equal(soda_memory_create(&store, &opt, &memory, &why), 0);
	expect_policy(memory.map, MPOL_BIND);
	expect_policy(memory.dirty, MPOL_BIND);
	again = mmap(NULL, 4096, PROT_READ, MAP_SHARED, memory.fd, 0);
	assert_ptr_not_equal(again, MAP_FAILED);
	expect_policy(again, MPOL_BIND);
	munmap(again, 4096);
	soda_memory_destroy(&store, &memory, NULL);
	opt = (struct soda_memory_options){ .bytes = 4 * MIB, .unshared = true };
	assert_int_equal(soda_memory_create(&store, &opt, &memory, &why), 0);
	expect_policy(memory.map, MPOL_BIND);
	soda_memory_destroy(&store, &memory, NULL);
	assert_int_equal(store.used, 0);
}

/* A bus as sysfs shows it: a device without a node, below one that has it. */
static void check_device(void **state)
{
	char dir[] = "/tmp/soda-test-XXXXXX", path[64], link[64];
	static const char *const parts[] = { "bridge", "bridge/card", "bridge/card/virtio0" };
	FILE *f;

	assert_non_null(mkdtemp(dir));
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, parts[i]);
		assert_return_code(mkdir(path, 0700), errno);
	}
	snprintf(link, sizeof(link), "%s/device", dir);
	assert_return_code(symlink("bridge/card/virtio0", link), errno);
	assert_int_equal(soda_nic_node_of_path(link), SODA_NODE_ANY);
	for (int i = 1; i >= 0; i--) {
		snprintf(path, sizeof(path), "%s/%s/numa_node", dir, parts[i]);
		f = fopen(path, "we");
		assert_non_null(f);
		fputs(i ? "-1\n" : "5\n", f); /* -1: the firmware does not say */
		fclose(f);
	}
	assert_int_equal(soda_nic_node_of_path(link), 5);
	assert_int_equal(soda_nic_node_of_path("/nonexistent"), SODA_NODE_ANY);
	assert_int_equal(soda_nic_node_of_interface("lo"), SODA_NODE_ANY);
	assert_int_equal(soda_nic_node_of_interface("../net"), SODA_NODE_ANY);
	for (int i = 1; i >= 0; i--) {
		snprintf(path, sizeof(path), "%s/%s/numa_node", dir, parts[i]);
		unlink(path);
	}
	unlink(link);
	for (int i = 2; i >= 0; i--) {
		snprintf(path, sizeof(path), "%s/%s", dir, parts[i]);
		rmdir(path);
	}
	assert_return_code(rmdir(dir), errno);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(check_nodes_text, needs_numa),
		cmocka_unit_test(check_wrong_text),
		cmocka_unit_test(check_choice),
		cmocka_unit_test_setup(check_buffers, needs_numa),
		cmocka_unit_test_setup(check_store, needs_numa),
		cmocka_unit_test(check_device),
	};

	soda_nodes_present(&present);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
