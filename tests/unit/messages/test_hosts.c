/* SPDX-License-Identifier: BSD-3-Clause */
/* Host files, and Slurm's lists of nodes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "messages/hosts.h"

static struct soda_why why;

static int read_text(const char *text, size_t bytes, uint32_t ranks, struct soda_hosts *hosts)
{
	FILE *f = fmemopen((void *)(uintptr_t)text, bytes, "r");
	int ret;

	assert_non_null(f);
	ret = soda_hosts_read(f, "hosts", ranks, hosts, &why);
	fclose(f);
	return ret;
}

static void check(int ret, struct soda_hosts *found, const char *agents, const char *places)
{
	if (ret < 0)
		fail_msg("%d: %s", ret, why.text);
	assert_string_equal(found->agents, agents);
	if (places)
		assert_string_equal(found->places, places);
	else
		assert_null(found->places);
	free(found->agents);
	free(found->places);
}

static void file_is(const char *text, uint32_t ranks, const char *agents, const char *places)
{
	struct soda_hosts found;

	check(read_text(text, strlen(text), ranks, &found), &found, agents, places);
}

static void file_fails(const char *text, const char *says)
{
	struct soda_hosts found = { NULL, NULL };

	assert_int_equal(read_text(text, strlen(text), 4, &found), -EINVAL);
	if (strcmp(why.text, says) != 0)
		fail_msg("%s, not %s", why.text, says);
	assert_null(found.agents);
}

static void files(void **state)
{
	file_is("tcp://a:1 2\ntcp://b:1 2\n", 4, "tcp://a:1,tcp://b:1", "0*2,1*2");
	file_is("# all\n\n  tcp://a:1\t3 # big\r\ntcp://b:1 1", 4, "tcp://a:1,tcp://b:1",
		"0*3,1*1");
	file_is("tcp://a:1\ntcp://b:1\n", 4, "tcp://a:1,tcp://b:1", NULL);
	file_is("tcp://a:1 3\ntcp://b:1 3\n", 4, "tcp://a:1,tcp://b:1", "0*3,1*1");
	file_is("tcp://a:1 4\ntcp://b:1 4\n", 4, "tcp://a:1", "0*4"); /* b has none */
	file_is("shm:///run/soda 9", 4, "shm:///run/soda", "0*4");
}

static void wrong_files(void **state)
{
	char many[4096] = "";
	struct soda_hosts found;

	file_fails("\n# nothing\n", "hosts names no agent");
	file_fails("tcp://a:1\n\nnode2 4\n",
		   "hosts:3: node2 is not an agent's address: tcp://HOST:PORT");
	file_fails("tcp://a:1,tcp://b:1\n",
		   "hosts:1: tcp://a:1,tcp://b:1 is not an agent's address: tcp://HOST:PORT");
	file_fails("tcp:// 4", "hosts:1: tcp:// is not an agent's address: tcp://HOST:PORT");
	file_fails("tcp://a:1 0", "hosts:1: 0 is not a number of ranks, 1 to 4096");
	file_fails("tcp://a:1 4097", "hosts:1: 4097 is not a number of ranks, 1 to 4096");
	file_fails("tcp://a:1 2x", "hosts:1: 2x is not a number of ranks, 1 to 4096");
	file_fails("tcp://a:1 -2", "hosts:1: -2 is not a number of ranks, 1 to 4096");
	file_fails("tcp://a:1 2 3", "hosts:1: more than an address and a number of ranks");
	file_fails("tcp://a:1 2\ntcp://a:1 2", "hosts:2: tcp://a:1 is there already");
	file_fails("tcp://a:1 2\ntcp://b:1",
		   "hosts: 1 of 2 agents have a number of ranks: all, or none");
	file_fails("tcp://a:1 2\ntcp://b:1 1", "hosts has agents for 3 ranks, and the job has 4");
	for (unsigned i = 0; i < 65; i++)
		snprintf(many + strlen(many), sizeof(many) - strlen(many), "tcp://n:%u\n", i + 1);
	file_fails(many, "hosts:65: a job has at most 64 agents");
	assert_int_equal(read_text("tcp://a\0:1\n", 11, 1, &found), -EINVAL);
	assert_string_equal(why.text, "hosts:1: is not text");
}

static void nodes_are(const char *nodes, const char *tasks, uint32_t ranks, const char *agents,
		      const char *places)
{
	struct soda_hosts found;

	check(soda_hosts_expand(nodes, tasks, 7, ranks, &found, &why), &found, agents, places);
}

static void nodes_fail(const char *nodes, const char *tasks)
{
	struct soda_hosts found = { NULL, NULL };

	why.text[0] = 0;
	assert_int_equal(soda_hosts_expand(nodes, tasks, 7, 4, &found, &why), -EINVAL);
	if (strncmp(why.text, "Slurm's nodes", 13) != 0)
		fail_msg("%s, %s: %s", nodes, tasks, why.text);
	assert_null(found.agents);
}

static void slurm(void **state)
{
	nodes_are("vm", "3", 3, "tcp://vm:7", "0*3");
	nodes_are("a,b-2,c", "2,1(x2)", 4, "tcp://a:7,tcp://b-2:7,tcp://c:7", "0*2,1*1,2*1");
	nodes_are("n[08-10]", "2(x3)", 6, "tcp://n08:7,tcp://n09:7,tcp://n10:7", "0*2,1*2,2*2");
	nodes_are("n[1,3-4],x", "1(x3),5", 8, "tcp://n1:7,tcp://n3:7,tcp://n4:7,tcp://x:7",
		  "0*1,1*1,2*1,3*5");
	nodes_are("0,n[0-1]", "1(x3)", 3, "tcp://0:7,tcp://n0:7,tcp://n1:7", "0*1,1*1,2*1");
}

static void wrong_slurm(void **state)
{
	static const char *const nodes[] = { "",
					     ",a",
					     "a,",
					     "a,,b",
					     "a[",
					     "a[]",
					     "a[1",
					     "a[1-",
					     "a[2-1]",
					     "a[x]",
					     "a[1]b",
					     "a[1][2]",
					     "[1-2]",
					     "a[1-2],",
					     "a[1;2]",
					     "a]",
					     "a[1-99999999999]",
					     "a[1-500]" };
	static const char *const tasks[] = { "",  "0",	 "4,",	  "4(x", "4(x1", "4(x0)", "4(y1)",
					     "x", "4,4", "4(x2)", "4 ",	 "9999", "3" };

	for (unsigned i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++)
		nodes_fail(nodes[i], "4(x500)");
	for (unsigned i = 0; i < sizeof(tasks) / sizeof(tasks[0]); i++)
		if (strcmp(tasks[i], "4,") != 0)
			nodes_fail("a", tasks[i]);
}

static void environment(void **state)
{
	struct soda_hosts found;

	unsetenv("SODA_MSG_HOSTS");
	unsetenv("SODA_MSG_PORT");
	unsetenv("SLURM_STEP_NODELIST");
	assert_int_equal(soda_hosts_find(2, &found, &why), 0);
	assert_null(found.agents);
	setenv("SODA_MSG_PORT", "7500", 1);
	assert_int_equal(soda_hosts_find(2, &found, &why), -EINVAL);
	assert_non_null(strstr(why.text, "srun has not started"));
	setenv("SLURM_STEP_NODELIST", "n[1-2]", 1);
	setenv("SLURM_STEP_TASKS_PER_NODE", "1(x2)", 1);
	check(soda_hosts_find(2, &found, &why), &found, "tcp://n1:7500,tcp://n2:7500", "0*1,1*1");
	setenv("SODA_MSG_PORT", "70000", 1);
	assert_int_equal(soda_hosts_find(2, &found, &why), -EINVAL);
	assert_non_null(strstr(why.text, "70000 is not a port"));
	setenv("SODA_MSG_HOSTS", "/no/such/hosts", 1); /* comes first */
	assert_int_equal(soda_hosts_find(2, &found, &why), -ENOENT);
	assert_non_null(strstr(why.text, "/no/such/hosts"));
	setenv("SODA_MSG_HOSTS", "/tmp", 1);
	assert_int_equal(soda_hosts_find(2, &found, &why), -EISDIR);
}

static void routers_are(const char *agents, const uint8_t *places, uint32_t ranks,
			const char *expected)
{
	char *list = NULL;

	if (soda_hosts_routers(agents, places, ranks, &list, &why))
		fail_msg("%s", why.text);
	assert_string_equal(list, expected);
	free(list);
}

/* An agent's address stands for its ranks' routers. */
static void routers(void **state)
{
	const uint8_t places[] = { 0, 0, 1, 0, 1 };
	char *list = NULL;

	routers_are("tcp://a:7500", NULL, 1, "tcp://a:7500");
	routers_are("tcp://a:7500", NULL, 3, "tcp://a:7500,tcp://a:7501,tcp://a:7502");
	routers_are("tcp://a:7500,tcp://[::1]:80", places, 5,
		    "tcp://a:7500,tcp://a:7501,tcp://[::1]:80,tcp://a:7502,tcp://[::1]:81");
	routers_are("shm:///run/a,fault+tcp://b:1?do=cut&on=call", places, 5,
		    "shm:///run/a,shm:///run/a.1,fault+tcp://b:1?do=cut&on=call,shm:///run/a.2,"
		    "fault+tcp://b:2?do=cut&on=call");
	routers_are("verbs://10.0.0.1:9,shm://@x", places, 3,
		    "verbs://10.0.0.1:9,verbs://10.0.0.1:10,shm://@x");
	assert_int_equal(soda_hosts_routers("tcp://a:65535", NULL, 2, &list, &why), -EINVAL);
	assert_string_equal(why.text,
			    "tcp://a:65535: 1 ports behind it there is none for a rank's router");
	assert_int_equal(soda_hosts_routers("tcp://a", NULL, 2, &list, &why), -EINVAL);
	assert_int_equal(soda_hosts_routers("tcp://a:1", NULL, 65, &list, &why), -EINVAL);
	assert_non_null(strstr(why.text, "at most 64 ranks, and the job has 65"));
	assert_null(list);
}

static void here_fails(const char *name, const char *value, const char *says)
{
	char *list = NULL;

	setenv(name, value, 1);
	assert_true(soda_hosts_here("job", 4, &list, &why) < 0);
	assert_non_null(strstr(why.text, says));
	unsetenv(name);
}

/* All ranks on this machine, as far as a launcher says. */
static void here(void **state)
{
	char dir[] = "/tmp/soda-hosts-XXXXXX", begin[64], longer[90] = "", *list, *other;

	assert_non_null(mkdtemp(dir));
	setenv("TMPDIR", dir, 1);
	snprintf(begin, sizeof(begin), "shm://%s/soda-msg-%u/", dir, (unsigned)geteuid());
	setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
	assert_int_equal(soda_hosts_here("job", 2, &list, &why), 0);
	assert_int_equal(soda_hosts_here("other", 2, &other, &why), 0);
	assert_int_equal(strncmp(list, begin, strlen(begin)), 0);
	assert_non_null(strstr(list, ".0,shm://"));
	assert_string_equal(strrchr(list, '.'), ".1");
	assert_string_not_equal(list, other);
	free(list);
	free(other);
	here_fails("OMPI_COMM_WORLD_LOCAL_SIZE", "2", "several machines");
	here_fails("MPI_LOCALNRANKS", "3", "several machines");
	here_fails("SLURM_STEP_NUM_NODES", "2", "several machines");
	assert_int_equal(rmdir(begin + 6), 0);
	assert_int_equal(symlink("/", (begin[strlen(begin) - 1] = 0, begin + 6)), 0);
	here_fails("MPI_LOCALNRANKS", "4", "is not a directory of yours alone");
	assert_int_equal(unlink(begin + 6), 0);
	here_fails("TMPDIR", "/no/such", "No such file");
	/* a folder of another name, and sockets that no address holds, would come of it */
	memset(longer, 'x', sizeof(longer) - 1);
	memcpy(longer, dir, strlen(dir));
	longer[strlen(dir)] = '/';
	here_fails("TMPDIR", longer, "is too long for the sockets");
	assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files),       cmocka_unit_test(wrong_files),
		cmocka_unit_test(slurm),       cmocka_unit_test(wrong_slurm),
		cmocka_unit_test(environment), cmocka_unit_test(routers),
		cmocka_unit_test(here),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
