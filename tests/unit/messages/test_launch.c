/* SPDX-License-Identifier: BSD-3-Clause */
/* What launchers' environments say, and files with keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "messages/launch.h"

static const char *const variables[] = {
	"SODA_MSG_RANK",
	"SODA_MSG_RANKS",
	"SODA_MSG_JOB",
	"SODA_MSG_KEY",
	"SODA_MSG_KEY_FILE",
	"OMPI_COMM_WORLD_RANK",
	"OMPI_COMM_WORLD_SIZE",
	"PMIX_NAMESPACE",
	"PMIX_RANK",
	"SLURM_PROCID",
	"SLURM_STEP_NUM_TASKS",
	"SLURM_JOB_ID",
	"SLURM_STEP_ID",
	"PMI_RANK",
	"PMI_SIZE",
	"PMI_JOBID",
	"SODA_MSG_PACKET",
	"SODA_MSG_SLOTS",
	"SODA_MSG_FLUSH_US",
};

/* Only these are set: NAME, VALUE, NAME, VALUE ... */
static void set_only(const char *const *pairs)
{
	for (unsigned i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		unsetenv(variables[i]);
	for (; *pairs; pairs += 2)
		setenv(pairs[0], pairs[1], 1);
}
#define ONLY(...) set_only((const char *const[]){ __VA_ARGS__, NULL })

static void expect(uint32_t rank, uint32_t ranks, const char *name)
{
	char found_name[SODA_WIRE_MAX_NAME + 1];
	struct soda_launch found;
	struct soda_why why;

	assert_int_equal(soda_launch_find(&found, &why), 0);
	assert_int_equal(found.rank, rank);
	assert_int_equal(found.ranks, ranks);
	if (name) {
		assert_int_equal(soda_launch_name(found_name, &why), 0);
		assert_string_equal(found_name, name);
	} else {
		assert_int_equal(soda_launch_name(found_name, &why), -EINVAL);
		assert_non_null(strstr(why.text, "SODA_MSG_JOB"));
	}
}

static void launchers(void **state)
{
	ONLY("SODA_MSG_RANK", "1", "SODA_MSG_RANKS", "3", "SODA_MSG_JOB", "j");
	expect(1, 3, "j");
	ONLY("OMPI_COMM_WORLD_RANK", "4", "OMPI_COMM_WORLD_SIZE", "5", "PMIX_NAMESPACE", "77",
	     "PMIX_RANK", "4");
	expect(4, 5, "ompi.77");
	ONLY("SLURM_PROCID", "0", "SLURM_STEP_NUM_TASKS", "2", "SLURM_JOB_ID", "12",
	     "SLURM_STEP_ID", "3");
	expect(0, 2, "slurm.12.3");
	ONLY("PMI_RANK", "0", "PMI_SIZE", "1");
	expect(0, 1, NULL);
	ONLY("PMI_RANK", "0", "PMI_SIZE", "1", "SODA_MSG_JOB", "mine");
	expect(0, 1, "mine");
	ONLY("PMI_RANK", "0", "PMI_SIZE", "1", "PMI_JOBID", "8");
	expect(0, 1, "pmi.8");
	ONLY("PMIX_RANK", "2", "SODA_MSG_RANKS", "4096", "PMIX_NAMESPACE", "n");
	expect(2, 4096, "pmix.n");
}

/* mpirun in what srun has started, srun with PMI, soda msg run in one of them. */
static void which_counts(void **state)
{
	ONLY("SLURM_PROCID", "0", "SLURM_STEP_NUM_TASKS", "2", "SLURM_JOB_ID", "12",
	     "SLURM_STEP_ID", "3", "OMPI_COMM_WORLD_RANK", "6", "OMPI_COMM_WORLD_SIZE", "7",
	     "PMIX_NAMESPACE", "n");
	expect(6, 7, "ompi.n");
	ONLY("SLURM_PROCID", "1", "SLURM_STEP_NUM_TASKS", "2", "SLURM_JOB_ID", "12",
	     "SLURM_STEP_ID", "3", "PMI_RANK", "1", "PMI_SIZE", "2");
	expect(1, 2, "slurm.12.3");
	/* mpirun of MPICH in a batch script */
	ONLY("SLURM_PROCID", "0", "SLURM_JOB_ID", "12", "PMI_RANK", "1", "PMI_SIZE", "2");
	expect(1, 2, NULL);
	ONLY("OMPI_COMM_WORLD_RANK", "6", "OMPI_COMM_WORLD_SIZE", "7", "SODA_MSG_RANK", "0",
	     "SODA_MSG_RANKS", "2", "SODA_MSG_JOB", "j");
	expect(0, 2, "j");
}

static void nobody(void **state)
{
	static const char *const bad[] = {
		"", "-1", "+1", " 1", "1x", "4097", "99999999999999999999"
	};
	struct soda_launch found = { 7, 7 };
	struct soda_why why;

	ONLY(NULL);
	assert_int_equal(soda_launch_find(&found, &why), -EINVAL);
	assert_non_null(strstr(why.text, "mpirun"));
	/* a batch script is no rank */
	ONLY("SLURM_PROCID", "0", "SLURM_JOB_ID", "12");
	assert_int_equal(soda_launch_find(&found, &why), -EINVAL);
	ONLY("PMIX_RANK", "0");
	assert_int_equal(soda_launch_find(&found, &why), -EINVAL);
	assert_non_null(strstr(why.text, "SODA_MSG_RANKS is not set"));
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ONLY("PMI_RANK", "0", "PMI_SIZE", bad[i]);
		assert_int_equal(soda_launch_find(&found, &why), -EINVAL);
		assert_non_null(strstr(why.text, "PMI_SIZE"));
	}
	assert_int_equal(found.rank, 7);
}

static void long_names(void **state)
{
	char name[SODA_WIRE_MAX_NAME + 1], text[SODA_WIRE_MAX_NAME + 2];
	struct soda_why why;

	memset(text, 'x', sizeof(text));
	text[SODA_WIRE_MAX_NAME + 1] = 0;
	ONLY("SODA_MSG_JOB", text);
	assert_int_equal(soda_launch_name(name, &why), -EINVAL);
	text[SODA_WIRE_MAX_NAME] = 0;
	setenv("SODA_MSG_JOB", text, 1);
	assert_int_equal(soda_launch_name(name, &why), 0);
	assert_string_equal(name, text);
}

static char path[] = "/tmp/soda-launch-XXXXXX";

static void write_key(const char *text, size_t bytes)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, bytes, f), bytes);
	assert_int_equal(fclose(f), 0);
}

static void refused(int err, const char *says)
{
	char key[SODA_LAUNCH_KEY_MAX + 1] = "old";
	struct soda_why why = { "" };

	assert_int_equal(soda_launch_key(key, &why), err);
	if (!strstr(why.text, says))
		fail_msg("%s, not %s", why.text, says);
}

static void accepted(const char *expected)
{
	char key[SODA_LAUNCH_KEY_MAX + 1] = "old";
	struct soda_why why = { "" };

	assert_int_equal(soda_launch_key(key, &why), 0);
	assert_string_equal(key, expected);
}

static void keys(void **state)
{
	ONLY(NULL);
	accepted("");
	ONLY("SODA_MSG_KEY_FILE", path);
	write_key("0123456789abcdef\nsecond line\n", 29);
	accepted("0123456789abcdef");
	write_key("0123456789abcdef", 16);
	accepted("0123456789abcdef");
	setenv("SODA_MSG_KEY", "said", 1); /* comes first */
	accepted("said");
	unsetenv("SODA_MSG_KEY");
	chmod(path, 0640);
	refused(-EACCES, "others may read or write it (mode 640)");
	chmod(path, 0602);
	refused(-EACCES, "mode 602");
	chmod(path, 0600);
	write_key("short\n", 6);
	refused(-EINVAL, "16 to 1024 bytes");
	write_key("", 0);
	refused(-EINVAL, "16 to 1024 bytes");
	write_key("0123456789abcdef\0ghi\n", 21);
	refused(-EINVAL, "is not text");
	if (geteuid() == 0) {
		write_key("0123456789abcdef", 16);
		assert_int_equal(chown(path, 12345, (gid_t)-1), 0);
		refused(-EACCES, "is user 12345's");
	}
	ONLY("SODA_MSG_KEY_FILE", "/no/such/key");
	refused(-ENOENT, "/no/such/key");
	ONLY("SODA_MSG_KEY_FILE", "/tmp");
	refused(-EINVAL, "is not a file");
}

static void long_keys(void **state)
{
	char text[SODA_LAUNCH_KEY_MAX + 2];

	memset(text, 'k', sizeof(text));
	ONLY("SODA_MSG_KEY_FILE", path);
	if (geteuid() == 0)
		assert_int_equal(chown(path, 0, (gid_t)-1), 0);
	write_key(text, SODA_LAUNCH_KEY_MAX + 1);
	refused(-EINVAL, "16 to 1024 bytes");
	text[SODA_LAUNCH_KEY_MAX + 1] = 0;
	ONLY("SODA_MSG_KEY", text);
	refused(-EINVAL, "more than 1024 bytes");
	text[SODA_LAUNCH_KEY_MAX] = 0;
	setenv("SODA_MSG_KEY", text, 1);
	accepted(text);
}

static void sizes_are(uint32_t packet_bytes, uint32_t slots, uint32_t flush_us)
{
	struct soda_launch_sizes found;
	struct soda_why why;

	assert_int_equal(soda_launch_sizes(&found, &why), 0);
	assert_int_equal(found.packet_bytes, packet_bytes);
	assert_int_equal(found.slots, slots);
	assert_int_equal(found.flush_us, flush_us);
}

static void sizes(void **state)
{
	static const char *const wrong[][2] = {
		{ "SODA_MSG_PACKET", "4095" },	{ "SODA_MSG_PACKET", "61441" },
		{ "SODA_MSG_PACKET", "8K" },	{ "SODA_MSG_SLOTS", "0" },
		{ "SODA_MSG_SLOTS", "5" },	{ "SODA_MSG_SLOTS", "-1" },
		{ "SODA_MSG_FLUSH_US", "0" },	{ "SODA_MSG_FLUSH_US", "1000001" },
		{ "SODA_MSG_FLUSH_US", " 12" },
	};

	ONLY("PMI_RANK", "0");
	sizes_are(60 << 10, 4, 500);
	ONLY("SODA_MSG_PACKET", "8191", "SODA_MSG_SLOTS", "2", "SODA_MSG_FLUSH_US", "7");
	sizes_are(8184, 2, 7);
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct soda_launch_sizes found;
		struct soda_why why;

		ONLY(wrong[i][0], wrong[i][1]);
		assert_int_equal(soda_launch_sizes(&found, &why), -EINVAL);
		assert_non_null(strstr(why.text, wrong[i][0]));
	}
}

static int make_file(void **state)
{
	int fd = mkstemp(path);

	return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
	return unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(launchers), cmocka_unit_test(which_counts),
		cmocka_unit_test(nobody),    cmocka_unit_test(long_names),
		cmocka_unit_test(keys),	     cmocka_unit_test(long_keys),
		cmocka_unit_test(sizes),
	};

	return cmocka_run_group_tests(tests, make_file, remove_file);
}
