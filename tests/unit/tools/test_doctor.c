/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What `soda doctor` decides of machines that are not here, and what it reads in a folder that
 * stands in for the kernel's files.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "soda/doctor/doctor.h"

/* A machine on which nothing is missing. */
static const struct soda_doctor_facts good = {
	.release = "6.18.0",
	.inline_mode = { .how = "userfaultfd(2)", .user_only = true },
	.handler_mode = { .how = "userfaultfd(2)" },
	.poison = true,
	.minor = true,
	.batch = true,
	.device = true,
	.device_opens = true,
	.map_count = 65530,
	.thp = "madvise",
	.folios = "advise",
	.rdma = { { "mlx5_0", true } },
	.rdma_n = 1,
	.rdma_cm = true,
	.rdma_cm_opens = true,
	.cgroup = 2,
	.memlock = UINT64_MAX,
	.memlock_max = UINT64_MAX,
	.descriptors = 1024,
	.descriptors_max = 1 << 20,
	.core = UINT64_MAX,
	.addresses = UINT64_MAX,
	.memory_limit = UINT64_MAX,
	.memory_available = (uint64_t)8 << 30,
	.processors = 4,
	.verbs_built = true,
};

static void judge(const struct soda_doctor_facts *f, struct soda_findings *out)
{
	out->n = 0;
	soda_judge_kernel(f, out);
	soda_judge_limits(f, out);
	soda_judge_memory(f, out);
	soda_judge_rdma(f, out);
}

/* The check has this verdict; with ADVICE, and only then, there is advice, and this is in it. */
static void has(const struct soda_findings *all, const char *check, enum soda_verdict verdict,
		const char *advice)
{
	const struct soda_finding *f = NULL;

	for (size_t i = 0; i < all->n; i++)
		if (!strcmp(all->list[i].check, check))
			f = &all->list[i];
	if (!f)
		print_error("no check %s\n", check);
	assert_non_null(f);
	if (f->verdict != verdict || (advice ? !strstr(f->advice, advice) : *f->advice))
		print_error("%s: verdict %d: %s -> %s\n", check, f->verdict, f->found, f->advice);
	assert_int_equal(f->verdict, verdict);
	assert_true(*f->found);
	if (advice)
		assert_non_null(strstr(f->advice, advice));
	else
		assert_string_equal(f->advice, "");
}

/* The same of facts: one check is not ok, all others are. */
static void alone(const struct soda_doctor_facts *f, const char *check, enum soda_verdict verdict,
		  const char *advice)
{
	struct soda_findings all;

	judge(f, &all);
	has(&all, check, verdict, advice);
	assert_int_equal(soda_findings_count(&all, SODA_VERDICT_OK), all.n - 1);
}

#define CHANGED(...)                                                                               \
	struct soda_doctor_facts f = good;                                                         \
	__VA_ARGS__

static void test_good_machine(void **state)
{
	struct soda_findings all;

	judge(&good, &all);
	assert_int_equal(all.n, 17);
	for (size_t i = 0; i < all.n; i++)
		has(&all, all.list[i].check, SODA_VERDICT_OK, NULL);
}

static void test_userfaultfd_refused(void **state)
{
	const struct soda_doctor_mode refused = { .err = -EPERM,
						  .why = { "userfaultfd is refused" } };
	struct soda_findings all;

	CHANGED(f.inline_mode = f.handler_mode = refused; f.device_opens = false);
	judge(&f, &all);
	has(&all, "kernel.inline", SODA_VERDICT_FAILURE, "5.7");
	has(&all, "kernel.handler", SODA_VERDICT_WARNING, "setfacl");
	has(&all, "privileges.userfaultfd", SODA_VERDICT_FAILURE, "setfacl");
	f.seccomp = true;
	judge(&f, &all);
	has(&all, "privileges.userfaultfd", SODA_VERDICT_FAILURE, "seccomp");
	has(&all, "kernel.inline", SODA_VERDICT_FAILURE, "--device /dev/userfaultfd");
	f.seccomp = f.device = false;
	judge(&f, &all);
	has(&all, "privileges.userfaultfd", SODA_VERDICT_FAILURE, "sysctl");
	assert_null(strstr(all.list[1].advice, "setfacl"));
}

/* `--fix' prints a shell's command, and none in a container, where other hands must act. */
static void commanded(const struct soda_doctor_facts *f, const char *check, const char *command)
{
	const char *found = NULL;
	struct soda_findings all;

	judge(f, &all);
	for (size_t i = 0; i < all.n; i++)
		if (!strcmp(all.list[i].check, check))
			found = all.list[i].command;
	assert_non_null(found);
	assert_string_equal(found, command);
}

static void test_commands(void **state)
{
	const struct soda_doctor_mode refused = { .err = -EPERM };
	struct soda_findings all;

	judge(&good, &all);
	for (size_t i = 0; i < all.n; i++)
		assert_string_equal(all.list[i].command, "");
	CHANGED(f.inline_mode = f.handler_mode = refused; f.device_opens = false; f.user = 1000);
	commanded(&f, "privileges.userfaultfd", "setfacl -m u:1000:rw /dev/userfaultfd");
	f.device = false;
	commanded(&f, "privileges.userfaultfd", "sysctl -w vm.unprivileged_userfaultfd=1");
	commanded(&f, "kernel.handler", "sysctl -w vm.unprivileged_userfaultfd=1");
	f.seccomp = true;
	commanded(&f, "privileges.userfaultfd", "");
	commanded(&f, "kernel.handler", "");
	f = good;
	f.descriptors = 60;
	f.overcommit = 2;
	f.map_count = 1000;
	f.core = 0;
	f.addresses = 1 << 30;
	f.rdma_cm_opens = false;
	commanded(&f, "limits.descriptors", "ulimit -n 1024");
	commanded(&f, "memory.overcommit", "sysctl -w vm.overcommit_memory=0");
	commanded(&f, "limits.map_count", "sysctl -w vm.max_map_count=65530");
	commanded(&f, "limits.core", "ulimit -c unlimited");
	commanded(&f, "limits.addresses", "ulimit -v unlimited");
	commanded(&f, "network.rdma", "chmod 666 /dev/infiniband/rdma_cm");
}

/* In a container whose filter refuses the calls no kernel is to blame, and none is asked for. */
static void test_filtered(void **state)
{
	const struct soda_doctor_mode refused = { .err = -EPERM,
						  .why = { "userfaultfd is refused" } };
	struct soda_findings all;

	CHANGED(f.inline_mode = f.handler_mode = refused; f.seccomp = true; f.device = false;
		f.device_opens = f.poison = f.minor = f.batch = false);
	judge(&f, &all);
	has(&all, "kernel.inline", SODA_VERDICT_FAILURE, "seccomp=PROFILE.json");
	has(&all, "kernel.poison", SODA_VERDICT_NOTE, NULL);
	has(&all, "kernel.minor", SODA_VERDICT_NOTE, NULL);
	has(&all, "kernel.batch", SODA_VERDICT_WARNING, "process_madvise");
	for (size_t i = 0; i < all.n; i++) {
		assert_null(strstr(all.list[i].advice, "sysctl -w vm.unprivileged"));
		assert_null(strstr(all.list[i].advice, "CONFIG_USERFAULTFD"));
		assert_null(strstr(all.list[i].found, "no UFFDIO_POISON"));
		assert_null(strstr(all.list[i].found, "no minor faults"));
	}
	/* with the device faults are served, and are slow */
	f = good;
	f.seccomp = true;
	f.batch = false;
	alone(&f, "kernel.batch", SODA_VERDICT_WARNING, "process_madvise");
}

/* Not privileged is no error: the kernel lacks something is another one. */
static void test_userfaultfd_lacking(void **state)
{
	CHANGED(f.inline_mode.err = -ENOTSUP; snprintf(f.inline_mode.why.text, 64, "no WP"));
	alone(&f, "kernel.inline", SODA_VERDICT_FAILURE, "5.7");
}

static void test_handler_of_a_user(void **state)
{
	CHANGED(f.handler_mode.user_only = true; f.device_opens = false);
	alone(&f, "kernel.handler", SODA_VERDICT_NOTE, "setfacl");
	f.device = false;
	alone(&f, "kernel.handler", SODA_VERDICT_NOTE, "6.1");
}

static void test_older_kernels(void **state)
{
	CHANGED(f.poison = false);
	alone(&f, "kernel.poison", SODA_VERDICT_NOTE, NULL);
	f = good;
	f.minor = false;
	alone(&f, "kernel.minor", SODA_VERDICT_NOTE, NULL);
	f = good;
	f.batch = false;
	alone(&f, "kernel.batch", SODA_VERDICT_NOTE, NULL);
	f = good;
	strcpy(f.no_tls, "no TLS");
	alone(&f, "kernel.tls", SODA_VERDICT_NOTE, NULL);
}

/* 4 processors: 9 connections of 1 MiB, and calls. */
static void test_memlock(void **state)
{
	const uint64_t need = (9 << 20) + (136 << 10);

	CHANGED(f.memlock = need; f.memlock_max = need);
	struct soda_findings all;

	judge(&f, &all);
	has(&all, "limits.memlock", SODA_VERDICT_OK, NULL);
	f.memlock = need - 1;
	alone(&f, "limits.memlock", SODA_VERDICT_WARNING, "ulimit -l");
	f.memlock_max = need - 1;
	alone(&f, "limits.memlock", SODA_VERDICT_WARNING, "hard limit");
	f.verbs_wanted = true;
	alone(&f, "limits.memlock", SODA_VERDICT_FAILURE, "ulimit -l");
	f.ipc_lock = true;
	judge(&f, &all);
	has(&all, "limits.memlock", SODA_VERDICT_OK, NULL);
	f.ipc_lock = f.verbs_wanted = false;
	f.rdma_n = 0; /* nobody needs it */
	alone(&f, "network.rdma", SODA_VERDICT_NOTE, NULL);
}

static void test_other_limits(void **state)
{
	CHANGED(f.map_count = 65529);
	alone(&f, "limits.map_count", SODA_VERDICT_WARNING, "vm.max_map_count=65530");
	f = good;
	f.map_count = 0;
	alone(&f, "limits.map_count", SODA_VERDICT_NOTE, NULL);
	f = good;
	f.descriptors = 71; /* 4 pairs, and 64 */
	alone(&f, "limits.descriptors", SODA_VERDICT_WARNING, "ulimit -n 1024");
	f.descriptors = 72;
	f.core = 0;
	alone(&f, "limits.core", SODA_VERDICT_NOTE, "ulimit -c");
	f = good;
	f.addresses = (uint64_t)1 << 40;
	alone(&f, "limits.addresses", SODA_VERDICT_WARNING, "ulimit -v");
}

static void test_memory(void **state)
{
	CHANGED(f.cgroup = 0);
	alone(&f, "memory.cgroup", SODA_VERDICT_NOTE, "memory controller");
	f = good;
	f.overcommit = 2;
	alone(&f, "memory.overcommit", SODA_VERDICT_WARNING, "vm.overcommit_memory=0");
	f = good;
	strcpy(f.thp, "always");
	alone(&f, "memory.hugepages", SODA_VERDICT_NOTE, "10 MiB");
	f = good;
	strcpy(f.folios, "never");
	alone(&f, "memory.folios", SODA_VERDICT_NOTE, "echo advise >");
	f.folios[0] = 0;
	alone(&f, "memory.folios", SODA_VERDICT_NOTE, "Linux 6.11");
}

/* What is missing of RDMA matters as much as RDMA is wanted. */
static void test_rdma(void **state)
{
	CHANGED(f.verbs_built = false);
	alone(&f, "network.rdma", SODA_VERDICT_NOTE, "-Dverbs=enabled");
	f.verbs_wanted = true;
	alone(&f, "network.rdma", SODA_VERDICT_FAILURE, "-Dverbs=enabled");
	f = good;
	f.rdma_n = 0;
	alone(&f, "network.rdma", SODA_VERDICT_NOTE, NULL);
	f.verbs_wanted = true;
	alone(&f, "network.rdma", SODA_VERDICT_FAILURE, "rdma_rxe");
	f = good;
	f.rdma_cm = f.rdma_cm_opens = false;
	alone(&f, "network.rdma", SODA_VERDICT_WARNING, "modprobe rdma_ucm");
	f.rdma_cm = true;
	alone(&f, "network.rdma", SODA_VERDICT_WARNING, "chmod");
	f.rdma_cm_opens = true;
	f.rdma[0].active = false;
	alone(&f, "network.rdma", SODA_VERDICT_WARNING, "rdma link");
	f.verbs_wanted = true;
	alone(&f, "network.rdma", SODA_VERDICT_FAILURE, "rdma link");
}

static void test_peers(void **state)
{
	static const struct {
		int err;
		const char *advice;
	} failures[] = {
		{ -ECONNREFUSED, "nothing listens" }, { -ENOENT, "no socket" },
		{ -ETIMEDOUT, "firewall" },	      { -EHOSTUNREACH, "firewall" },
		{ -EPERM, "--allow-other" },	      { -EACCES, "--allow-other" },
		{ -EPROTONOSUPPORT, "same version" }, { -EPROTO, "something else" },
		{ -EINVAL, "tcp://HOST:PORT" },	      { -ENOTSUP, "build" },
		{ -ECONNRESET, "log of the daemon" },
	};
	struct soda_doctor_peer p = { .address = "tcp://h:1",
				      .named_by = "argument",
				      .version = SODA_VERSION,
				      .capacity = 4096,
				      .free_bytes = 4096 };
	struct soda_findings all = { 0 };

	soda_judge_peer(&p, &all);
	assert_int_equal(all.n, 1);
	has(&all, "servers.reached", SODA_VERDICT_OK, NULL);
	assert_non_null(strstr(all.list[0].found, "memory server"));
	p.agent = true;
	strcpy(p.version, "0.0.9");
	p.free_bytes = 0;
	all.n = 0;
	soda_judge_peer(&p, &all);
	assert_non_null(strstr(all.list[0].found, "DPU agent"));
	has(&all, "servers.reached", SODA_VERDICT_OK, NULL);
	has(&all, "servers.version", SODA_VERDICT_WARNING, "same version");
	has(&all, "servers.room", SODA_VERDICT_WARNING, "--capacity");
	p.draining = true;
	all.n = 0;
	soda_judge_peer(&p, &all);
	has(&all, "servers.reached", SODA_VERDICT_FAILURE, "successor");
	for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
		p.err = failures[i].err;
		all.n = 0;
		soda_judge_peer(&p, &all);
		assert_int_equal(all.n, 1);
		has(&all, "servers.reached", SODA_VERDICT_FAILURE, failures[i].advice);
	}
}

static void test_trial(void **state)
{
	struct soda_doctor_trial t = { .private_server = true };
	struct soda_findings all = { 0 };

	soda_judge_trial(&t, &all);
	has(&all, "program.memory", SODA_VERDICT_OK, NULL);
	assert_non_null(strstr(all.list[0].found, "private server"));
	t.err = -EINVAL;
	soda_judge_trial(&t, &all);
	has(&all, "program.memory", SODA_VERDICT_FAILURE, "environment");
	t.err = -ECONNREFUSED;
	soda_judge_trial(&t, &all);
	has(&all, "program.memory", SODA_VERDICT_FAILURE, "what else fails");
}

/* Files */

static char dir[64];

static void put(const char *name, const char *text)
{
	char path[512], *slash;
	FILE *out;

	snprintf(path, sizeof(path), "%s%s", dir, name);
	for (slash = path + strlen(dir) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = 0;
		mkdir(path, 0755);
		*slash = '/';
	}
	out = fopen(path, "w");
	assert_non_null(out);
	assert_true(fputs(text, out) >= 0);
	assert_int_equal(fclose(out), 0);
}

static void test_read_all(void **state)
{
	struct soda_doctor_facts f = { 0 };

	put("/proc/sys/vm/unprivileged_userfaultfd", "1\n");
	put("/proc/sys/vm/max_map_count", "262144\n");
	put("/proc/sys/vm/overcommit_memory", "2\n");
	put("/proc/self/status", "Name:\tsoda\nSeccomp:\t2\nSeccomp_filters:\t1\n");
	put("/proc/self/cgroup", "9:cpu,cpuacct:/\n4:blkio,memory:/a\n0::/\n");
	put("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
	put("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always [advise] never\n");
	put("/sys/kernel/mm/transparent_hugepage/hugepages-64kB/shmem_enabled",
	    "always [inherit] within_size advise never\n");
	put("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "32\n");
	put("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "30\n");
	put("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
	put("/sys/class/infiniband/mlx5_0/ports/2/state", "4: ACTIVE\n");
	put("/dev/infiniband/rdma_cm", "");
	put("/dev/userfaultfd", "");
	soda_doctor_read(dir, &f);
	assert_int_equal(f.unprivileged, 1);
	assert_true(f.device && f.device_opens && f.seccomp);
	assert_int_equal(f.map_count, 262144);
	assert_int_equal(f.overcommit, 2);
	assert_int_equal(f.cgroup, 1);
	assert_string_equal(f.thp, "madvise");
	assert_string_equal(f.folios, "advise");
	assert_int_equal(f.huge_pages, 32);
	assert_int_equal(f.huge_free, 30);
	assert_int_equal(f.rdma_n, 1);
	assert_string_equal(f.rdma[0].name, "mlx5_0");
	assert_true(f.rdma[0].active && f.rdma_cm && f.rdma_cm_opens);
}

/* A kernel without any of it, and files with other things than expected in them. */
static void test_read_nothing(void **state)
{
	struct soda_doctor_facts f = { 0 };

	soda_doctor_read(dir, &f);
	assert_int_equal(f.unprivileged, -1);
	assert_int_equal(f.overcommit, -1);
	assert_int_equal(f.map_count, 0);
	assert_int_equal(f.cgroup, 0);
	assert_string_equal(f.thp, "");
	assert_string_equal(f.folios, "");
	assert_false(f.device || f.device_opens || f.seccomp || f.rdma_cm);
	assert_int_equal(f.rdma_n, 0);
	put("/proc/sys/vm/max_map_count", "many\n");
	put("/proc/self/cgroup", "0::/user.slice\nnonsense\n");
	put("/sys/kernel/mm/transparent_hugepage/enabled", "[a-word-that-is-far-too-long-for-it\n");
	put("/proc/self/status", "");
	soda_doctor_read(dir, &f);
	assert_int_equal(f.map_count, 0);
	assert_int_equal(f.cgroup, 2);
	assert_int_equal(strlen(f.thp), sizeof(f.thp) - 1);
	assert_false(f.seccomp);
}

static int make_dir(void **state)
{
	strcpy(dir, "/tmp/soda-test-doctor-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static int remove_dir(void **state)
{
	return nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good_machine),
		cmocka_unit_test(test_userfaultfd_refused),
		cmocka_unit_test(test_userfaultfd_lacking),
		cmocka_unit_test(test_commands),
		cmocka_unit_test(test_filtered),
		cmocka_unit_test(test_handler_of_a_user),
		cmocka_unit_test(test_older_kernels),
		cmocka_unit_test(test_memlock),
		cmocka_unit_test(test_other_limits),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_rdma),
		cmocka_unit_test(test_peers),
		cmocka_unit_test(test_trial),
		cmocka_unit_test_setup_teardown(test_read_all, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_read_nothing, make_dir, remove_dir),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
