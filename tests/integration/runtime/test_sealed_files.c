/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sealed files: what lies in the export directory, who can open it, what is refused, and what of it
 * was changed there.  Servers and programs that end meanwhile: tests/fault/test_sealed_death.c.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/memory.h"
#include "lib/world.h"

enum {
	CHUNK = 65536,
	CHUNKS = 40,
	BYTES = CHUNKS * CHUNK - 1000,
	BUFFER = 24 * CHUNK,
	PAGE = 4096,
	ROUND = (BYTES + PAGE - 1) / PAGE * PAGE,
	TABLE = ROUND / PAGE * 32,
	DATA_AT = (PAGE + TABLE + CHUNK - 1) / CHUNK * CHUNK, /* wire/sealed_file.h */
	TOTAL = DATA_AT + ROUND,
};

#define GRACE "200ms" /* of the server for programs that end without closing their files */

static struct world world;
static size_t chunk = CHUNK;
static const char mark[16] = "fifteen letters";
static char keys[2][100]; /* paths */

static void write_key(unsigned which)
{
	snprintf(keys[which], sizeof(keys[which]), "%s/key%u", world.dir, which);
	write_seal_key(keys[which], which + 1);
}

/* A program as the case wants it. */
static void begin_at(const char *address, bool all, const char *key)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	char text[32];

	setenv("SODA_SEAL", all ? "1" : "0", 1);
	if (key)
		setenv("SODA_SEAL_KEY_FILE", key, 1);
	cfg.server = address;
	cfg.threads = 2;
	cfg.chunk_bytes = chunk;
	set_buffer(&cfg, BUFFER, text);
	start(&cfg);
}

static void begin(bool all, const char *key)
{
	begin_at(world.address, all, key);
}

/* One that has ended without closing its file has it for a moment more. */
static void *open_checked(const char *name, size_t bytes, unsigned flags)
{
	double until = now_seconds() + 20;
	size_t got = 0;
	void *p;

	while (!(p = soda_alloc_file(name, bytes, flags, &got)) && errno == EBUSY &&
	       now_seconds() < until)
		sleep_ms(20);
	CHECK(p, "%s", soda_last_error());
	CHECK_EQ(got, BYTES);
	return p;
}

static size_t count_marks(const char *data, size_t bytes)
{
	size_t n = 0;

	for (const char *at = data; (at = memmem(at, bytes - (size_t)(at - data), mark, 15)); at++)
		n++;
	return n;
}

static void fill(char *data, unsigned round)
{
	fill_text(data, BYTES, mark, round);
}

static void check_filled(const char *data, unsigned round)
{
	check_text(data, BYTES, mark, round);
}

static void child_makes(const void *arg)
{
	char *data;

	begin(true, keys[0]);
	data = open_checked(arg, BYTES, SODA_WRITABLE | SODA_CREATE);
	for (size_t i = 0; i < BYTES; i += PAGE)
		CHECK(!data[i], "byte %zu of a new file", i);
	fill(data, 0);
	CHECK_EQ(soda_sync(data, BYTES), 0);
	check_filled(data, 0);
	soda_free(data);
}

/* What lies in the directory has nothing of it. */
static void check_file(const char *name)
{
	char *file = world_read_file(&world, name, TOTAL);

	assert_memory_equal(file, "SODASEAL", 8);
	assert_int_equal(count_marks(file, TOTAL), 0);
	free(file);
}

static void make(const char *name)
{
	expect_passes(child_makes, name);
	check_file(name);
}

static void child_goes_on(const void *arg)
{
	unsigned round = *(const unsigned *)arg;
	char *data;

	begin(false, keys[0]);
	data = open_checked("goes-on", round % 2 ? 0 : BYTES, SODA_WRITABLE | SODA_SEALED);
	check_filled(data, round - 1);
	fill(data, round);
	CHECK_EQ(soda_sync(data + 5 * CHUNK, 1), 0); /* all of it is committed */
	fill(data, round + 1);
	_exit(0); /* without a soda_sync: nothing of that gets into the file */
}

static void test_program_after_program(void **state)
{
	make("goes-on");
	for (unsigned round = 1; round < 6; round++) {
		expect_passes(child_goes_on, &round);
		check_file("goes-on");
	}
}

/* Answers that make no sense: connections end, again and again, and each soda_sync ends well. */
static void child_garbled(const void *arg)
{
	char address[256], *data;

	snprintf(address, sizeof(address), "fault+%s?do=garble&on=read,write&rate=10&seeds=7",
		 (const char *)arg);
	begin_at(address, true, keys[0]);
	data = open_checked("garbled", BYTES, SODA_WRITABLE | SODA_CREATE);
	for (unsigned round = 0; round < 40; round++) {
		int ret;

		fill(data, round);
		ret = soda_sync(data, BYTES);
		CHECK(!ret, "round %u: %s", round, soda_last_error());
	}
	check_filled(data, 39);
	CHECK(stats_now().reconnects, "no answer was garbled");
	soda_free(data);
}

/* In a world whose server keeps a client for as long as it may take to come back. */
static void test_garbled(void **state)
{
	struct world patient;

	setenv("SODA_MEM_SERVER_GRACE", "60s", 1);
	world_open(&patient, WORLD_DEFAULT, NULL);
	setenv("SODA_MEM_SERVER_GRACE", GRACE, 1);
	expect_passes(child_garbled, patient.address);
	world_close_noisy(&patient);
}

/* With an agent SODA_COLD has it bring all to the server, and that commits. */
static bool through_agent;

static void child_colder(const void *arg)
{
	char *data;

	begin(true, keys[0]);
	data = open_checked("cold", BYTES, SODA_WRITABLE);
	fill(data, 1);
	CHECK_EQ(soda_sync(data, BYTES), 0);
	fill(data, 2);
	CHECK_EQ(soda_advise(data, BYTES, SODA_COLD), 0);
	check_filled(data, 2);
	_exit(0);
}

static void child_after_cold(const void *arg)
{
	begin(true, keys[0]);
	check_filled(open_checked("cold", 0, SODA_WRITABLE), through_agent ? 2 : 1);
}

static void test_cold(void **state)
{
	make("cold");
	expect_passes(child_colder, NULL);
	check_file("cold");
	expect_passes(child_after_cold, NULL);
}

/* One thread commits while another one stores, which evicts, and faults again. */

enum { WORDS = BYTES / 8, COMMITS = 4 };

static _Atomic bool committed;

static void store_or_commit(void *arg, unsigned thread)
{
	uint64_t *words = arg;

	for (int i = 0; !thread && i < COMMITS; i++)
		CHECK_EQ(soda_sync(words, BYTES), 0);
	if (!thread)
		committed = true;
	for (uint64_t round = 1; thread && !committed; round++)
		for (size_t i = 0; i < WORDS && !committed; i += 509) /* of each block one word */
			words[i] = round << 32 | i;
}

static void child_both(const void *arg)
{
	begin(true, keys[0]);
	run_threads(2, store_or_commit, open_checked("both", BYTES, SODA_WRITABLE | SODA_CREATE));
	_exit(0); /* some was evicted after the last commit */
}

static void child_after_both(const void *arg)
{
	const uint64_t *words;

	begin(true, keys[0]);
	words = open_checked("both", 0, SODA_WRITABLE);
	for (size_t i = 0; i < WORDS; i++)
		CHECK(!words[i] || (uint32_t)words[i] == i, "word %zu is 0x%llx", i,
		      (unsigned long long)words[i]);
}

static void test_commits_beside_stores(void **state)
{
	for (int i = 0; i < 12; i++) {
		expect_passes(child_both, NULL);
		expect_passes(child_after_both, NULL);
	}
}

static void child_reads(const void *arg)
{
	char *data;
	int ret;

	begin(true, keys[0]);
	data = open_checked(arg, 0, SODA_READ_ONLY);
	check_filled(data, 0);
	/* an agent may keep it, as it lies on the server */
	ret = soda_advise(data, BYTES, SODA_STATIC_CACHE);
	CHECK(ret == -ENOTSUP || !ret, "%d: %s", ret, soda_last_error());
	CHECK_EQ(soda_advise(data, BYTES, SODA_COLD), 0);
	check_filled(data, 0);
	CHECK_EQ(touch_signal((uint64_t *)data, true), SIGSEGV);
}

static void test_read_only(void **state)
{
	make("read");
	expect_passes(child_reads, "read");
}

/* A block that nobody has written to is zeros, and stays that. */
/* The key of keys[0], hidden from those who look for it. */
static uint8_t hidden[MEMORY_KEY];

/* A key whose bytes are nowhere by chance. */
static void write_hidden_key(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	CHECK(fd >= 0 && getrandom(hidden, sizeof(hidden), 0) == sizeof(hidden), "%s",
	      strerror(errno));
	dprintf(fd, "[seal]\nkey = ");
	for (int i = 0; i < 32; i++)
		dprintf(fd, "%02x", hidden[i] ^ MEMORY_HIDE);
	dprintf(fd, "\n");
	close(fd);
}

static int find_key(const char *without)
{
	return (int)memory_count_keys(getpid(), hidden, without);
}

/*
 * The key of all sealed files is in no core file of this process, and not in its children, and is
 * not swapped.
 */
static void child_forks(const void *arg)
{
	static uint8_t bare[32];
	char path[128], *data;
	pid_t pid;
	int status;

	snprintf(path, sizeof(path), "%s/hidden", world.dir);
	write_hidden_key(path);
	begin(true, path);
	data = open_checked("forked", BYTES, SODA_WRITABLE | SODA_CREATE);
	fill(data, 1);
	CHECK_EQ(soda_sync(data, 0), 0);
	pid = fork();
	if (pid == 0)
		_exit(find_key("dd"));
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK_EQ(find_key("dd"), 0);
	CHECK_EQ(find_key("lo"), 0);
	for (int i = 0; i < 32; i++) /* whether it would be found */
		bare[i] = hidden[i] ^ MEMORY_HIDE;
	__asm__ volatile("" : : "r"(bare) : "memory");
	CHECK_EQ(find_key("dd"), 1);
}

static void test_no_key_in_core_or_child(void **state)
{
	expect_passes(child_forks, NULL);
}

static void child_sparse(const void *arg)
{
	bool makes = arg;
	char *data;

	begin(true, keys[0]);
	data = open_checked("sparse", BYTES, SODA_WRITABLE | SODA_CREATE);
	for (size_t i = 0; i < BYTES; i++)
		if (data[i] != (!makes && i == 7 * CHUNK + 3))
			CHECK(0, "byte %zu is %d", i, data[i]);
	data[7 * CHUNK + 3] = 1;
	CHECK_EQ(soda_shutdown(), 0); /* which is a soda_sync */
}

static void test_sparse(void **state)
{
	expect_passes(child_sparse, "makes");
	expect_passes(child_sparse, NULL);
}

static void child_refused(const void *arg)
{
	begin(true, keys[0]);
	expect_file_refused("plain", 0, SODA_WRITABLE, "is not sealed");
	expect_file_refused("plain", 0, SODA_READ_ONLY, "is not sealed");
	expect_file_refused("short", 0, SODA_WRITABLE, "is not sealed");
	expect_file_refused("refused", 0, SODA_PRIVATE, "PRIVATE");
	expect_file_refused("refused", BYTES + 5000, SODA_WRITABLE, "another size");
	expect_file_refused("refused", BYTES - 1, SODA_WRITABLE, "another one than asked for");
	expect_file_refused("none", 0, SODA_WRITABLE, "");
	open_checked("refused", 0, SODA_WRITABLE);
}

static void child_plain_refused(const void *arg)
{
	begin(false, NULL);
	expect_file_refused("refused", 0, SODA_WRITABLE, "is sealed");
	expect_file_refused("refused", 0, SODA_READ_ONLY, "is sealed");
	expect_file_refused("refused", 0, SODA_PRIVATE, "is sealed");
	expect_file_refused("refused", 0, SODA_WRITABLE | SODA_SEALED, "SODA_SEAL_KEY_FILE");
}

static void child_other_key(const void *arg)
{
	begin(true, keys[1]);
	expect_file_refused("refused", 0, SODA_WRITABLE, "is sealed with the key");
}

static void child_open_key(const void *arg)
{
	begin(true, keys[1]);
	expect_file_refused("refused", 0, SODA_WRITABLE, "SODA_SEAL_KEY_FILE");
}

static void test_refusals(void **state)
{
	static const char zeros[2 * PAGE];

	make("refused");
	world_write_file(&world, "plain", zeros, sizeof(zeros));
	world_write_file(&world, "short", mark, sizeof(mark));
	expect_passes(child_refused, NULL);
	expect_passes(child_plain_refused, NULL);
	expect_passes(child_other_key, NULL);
	chmod(keys[1], 0644);
	expect_passes(child_open_key, NULL);
	chmod(keys[1], 0600);
	check_file("refused");
}

/* What is changed at rest. */

struct change {
	size_t at,
		with; /* bytes at `with` go to `at`, and the other way round; 0: a bit is changed */
	size_t bytes;
	size_t cut;	  /* the file's size; 0: as it is */
	const char *says; /* at the open; NULL: it opens, and a touch of block 20 is SIGBUS */
};

static void change_file(const char *name, const char *good, const struct change *c)
{
	char *file = malloc(TOTAL);

	memcpy(file, good, TOTAL);
	if (c->with) {
		memcpy(file + c->at, good + c->with, c->bytes);
		memcpy(file + c->with, good + c->at, c->bytes);
	} else if (!c->cut) {
		file[c->at] ^= 4;
	}
	world_write_file(&world, name, file, c->cut ? c->cut : TOTAL);
	free(file);
}

static void child_changed(const void *arg)
{
	const struct change *c = arg;
	char *data;

	begin(true, keys[0]);
	if (c->says) {
		expect_file_refused("changed", 0, SODA_WRITABLE, c->says);
		return;
	}
	data = open_checked("changed", 0, SODA_WRITABLE);
	CHECK_EQ(touch_signal((uint64_t *)(data + 20 * PAGE), false), SIGBUS);
	CHECK(!memcmp(data + 40 * PAGE, mark, sizeof(mark)), "another block");
}

static void test_changed(void **state)
{
	static const struct change changes[] = {
		{ .at = DATA_AT + 20 * PAGE + 77 },
		{ .at = DATA_AT + 20 * PAGE, .with = DATA_AT + 21 * PAGE, .bytes = PAGE },
		{ .at = PAGE + 20 * 32, .says = "table" },
		{ .at = PAGE + 20 * 32 + 17, .says = "table" },
		{ .at = PAGE + 20 * 32 + 25, .says = "table" },
		{ .at = PAGE + 20 * 32, .with = PAGE + 21 * 32, .bytes = 32, .says = "table" },
		{ .at = 0, .says = "not sealed" },
		{ .at = 8, .says = "header" },
		{ .at = 12, .says = "header" },
		{ .at = 17, .says = "is sealed with the key" },
		{ .at = 30, .says = "header" },
		{ .at = 48, .says = "header" },
		{ .at = 70, .says = "header" },
		{ .at = 127, .says = "header" },
		{ .at = 200, .says = "header" },
		{ .cut = TOTAL - PAGE, .says = "cut off" },
		{ .cut = DATA_AT, .says = "cut off" },
		{ .cut = 100, .says = "not sealed" },
	};
	struct outcome end;
	char *good;

	make("changed");
	good = world_read_file(&world, "changed", TOTAL);
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		struct trial t = { .child = child_changed, .arg = &changes[i] };

		change_file("changed", good, &changes[i]);
		trial_run(&t, &end);
		expect_exit(&end, 0);
		if (!changes[i].says)
			expect_says(&end, "are not what was sent to");
	}
	free(good);
}

/* A whole file of earlier is brought back while it is open, and its server starts anew. */

static char *earlier;

static void child_rolled_back(const void *arg)
{
	char *data;

	begin(true, keys[0]);
	data = open_checked("back", 0, SODA_WRITABLE);
	fill(data, 1);
	CHECK_EQ(soda_sync(data, BYTES), 0);
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	data[BYTES - 1] = 1; /* resident */
	CHECK_EQ(soda_sync(data, BYTES), -EIO);
	CHECK(strstr(soda_last_error(), "brought back from earlier"), "%s", soda_last_error());
}

/* As if the server had been killed while it wrote the file: it cannot tell (promise R10). */
static void hide_change(void)
{
	uint8_t note[24];
	char path[128];

	snprintf(path, sizeof(path), "%s/back", world.export_dir);
	assert_int_equal(getxattr(path, "user.soda.writer", note, sizeof(note)), sizeof(note));
	memset(note + 8, 0, sizeof(note) - 8);
	assert_return_code(setxattr(path, "user.soda.writer", note, sizeof(note), 0), errno);
}

static void roll_back(const void *arg)
{
	if (!turn_await())
		return;
	world_kill(&world);
	world_write_file(&world, "back", earlier, TOTAL);
	hide_change();
	world_restart(&world);
	turn_pass();
}

static void test_rolled_back(void **state)
{
	struct trial t = { .child = child_rolled_back, .during = roll_back };
	struct outcome end;

	make("back");
	earlier = world_read_file(&world, "back", TOTAL);
	trial_run(&t, &end);
	expect_exit(&end, 0);
	free(earlier);
}

static int setup(void **state)
{
	write_key(0);
	write_key(1);
	return 0;
}

/* Smaller chunks than the file's table: over shared memory no request is longer than a chunk. */
static void child_reads_all(const void *arg)
{
	char *data;

	begin(true, keys[0]);
	data = open_checked(arg, 0, SODA_READ_ONLY);
	check_filled(data, 0);
	soda_free(data);
}

static void test_small_chunks(void **state)
{
	chunk = CHUNK / 4;
	expect_passes(child_makes, "small");
	expect_passes(child_reads_all, "small");
	chunk = CHUNK;
	expect_passes(child_reads_all, "small");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_program_after_program, setup),
		cmocka_unit_test(test_cold),
		cmocka_unit_test(test_garbled),
		cmocka_unit_test(test_commits_beside_stores),
		cmocka_unit_test(test_read_only),
		cmocka_unit_test(test_small_chunks),
		cmocka_unit_test(test_sparse),
		cmocka_unit_test(test_no_key_in_core_or_child),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_changed),
		cmocka_unit_test(test_rolled_back),
	};

	through_agent = getenv("SODA_TEST_AGENT");
	setenv("SODA_MEM_SERVER_GRACE", GRACE, 1);
	return WORLD_RUN("sealed_files", &world, true, tests);
}
