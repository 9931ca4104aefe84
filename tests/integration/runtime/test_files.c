/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of the server's export directory as objects: each kind of access, and each refusal. */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/world.h"

/* Not a multiple of a chunk, a page or a word. */
enum { FILE_BYTES = (3 << 20) + 12345, CHUNK = 65536 };

static struct world world;

static uint8_t byte_at(size_t i, uint64_t round)
{
	return (uint8_t)mix(i, round);
}

static void make_file(const char *name, size_t bytes)
{
	uint8_t *data = malloc(bytes + 1);

	for (size_t i = 0; i < bytes; i++)
		data[i] = byte_at(i, 0);
	world_write_file(&world, name, data, bytes);
	free(data);
}

/* The file as this machine sees it: bytes [from, to) are those of the round. */
static void check_file(const char *name, size_t from, size_t to, uint64_t round)
{
	char path[256];
	uint8_t *data = malloc(to);
	int fd;

	snprintf(path, sizeof(path), "%s/%s", world.export_dir, name);
	fd = open(path, O_RDONLY);
	CHECK(fd >= 0, "%s", path);
	CHECK_EQ(pread(fd, data, to, 0), to);
	for (size_t i = from; i < to; i++)
		CHECK(data[i] == byte_at(i, round), "%s, byte %zu: %u", name, i, data[i]);
	close(fd);
	free(data);
}

static off_t file_bytes(const char *name)
{
	char path[256];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", world.export_dir, name);
	return stat(path, &st) ? -1 : st.st_size;
}

static void check_object(const uint8_t *p, size_t from, size_t to, uint64_t round)
{
	for (size_t i = from; i < to; i++)
		CHECK(p[i] == byte_at(i, round), "byte %zu: %u", i, p[i]);
}

static void fill_object(uint8_t *p, size_t from, size_t to, uint64_t round)
{
	for (size_t i = from; i < to; i++)
		p[i] = byte_at(i, round);
}

static void begin(void)
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	cfg.server = world.address;
	cfg.buffer = "1M"; /* a third of the file */
	cfg.threads = 1;
	start(&cfg);
}

static uint8_t *open_checked(const char *name, size_t bytes, unsigned flags, size_t *bytes_p)
{
	uint8_t *p = soda_alloc_file(name, bytes, flags, bytes_p);

	CHECK(p, "%s: %s", name, strerror(errno));
	return p;
}

static void refused(const char *name, size_t bytes, unsigned flags, int err)
{
	size_t got = 77;

	errno = 0;
	CHECK(!soda_alloc_file(name, bytes, flags, &got), "%s, %zu bytes, flags %u", name, bytes,
	      flags);
	CHECK(errno == err, "%s, %zu bytes, flags %u: %s, expected %s", name, bytes, flags,
	      strerror(errno), strerror(err));
	CHECK(soda_last_error()[0], "no sentence");
	CHECK_EQ(got, 77);
}

static void child_read_only(const void *arg)
{
	size_t bytes, part;
	uint8_t *p, *q;

	begin();
	p = open_checked("data", 0, SODA_READ_ONLY, &bytes);
	CHECK_EQ(bytes, FILE_BYTES);
	check_object(p, 0, FILE_BYTES, 0);
	CHECK_EQ(touch_signal((uint64_t *)p, true), SIGSEGV);
	CHECK_EQ(touch_signal((uint64_t *)(p + 2 * CHUNK), true), SIGSEGV);
	CHECK_EQ(soda_advise(p, FILE_BYTES, SODA_DISCARD), -EACCES);
	q = open_checked("sub/small", 5, SODA_READ_ONLY, &part);
	CHECK_EQ(part, 5);
	check_object(q, 0, 5, 0);
	check_object(p, 0, FILE_BYTES, 0);
	CHECK_EQ(soda_try_free(p), 0);
	CHECK_EQ(touch_signal((uint64_t *)p, false), SIGSEGV);
	check_file("data", 0, FILE_BYTES, 0);
}

static void test_read_only(void **state)
{
	make_file("data", FILE_BYTES);
	make_file("sub/small", 1000);
	expect_passes(child_read_only, NULL);
}

/* A second reader while the first one holds the file: the parent runs one beside the other. */
static void child_reader(const void *arg)
{
	uint8_t *p;

	begin();
	p = open_checked("data", 0, SODA_READ_ONLY, NULL);
	check_object(p, 0, FILE_BYTES, 0);
	turn_pass();
	turn_await();
	check_object(p, 0, FILE_BYTES, 0);
}

static void second_client(const void *arg)
{
	void (*child)(const void *arg) = *(void (*const *)(const void *))arg;

	if (!turn_await())
		return;
	expect_passes(child, NULL);
	turn_pass();
}

static void child_busy_for_writing(const void *arg)
{
	begin();
	refused("data", 0, SODA_WRITABLE, EBUSY);
	check_object(open_checked("data", 0, SODA_PRIVATE, NULL), 0, FILE_BYTES, 0);
}

static void beside(void (*first)(const void *arg), void (*second)(const void *arg))
{
	struct trial t = { .child = first, .during = second_client, .arg = &second };
	struct outcome out;

	trial_run(&t, &out);
	expect_quiet_success(&out);
}

static void child_second_reader(const void *arg)
{
	begin();
	check_object(open_checked("data", 0, SODA_READ_ONLY, NULL), 0, FILE_BYTES, 0);
}

/* Promise R2. */
static void test_many_readers_no_writer(void **state)
{
	make_file("data", FILE_BYTES);
	beside(child_reader, child_second_reader);
	beside(child_reader, child_busy_for_writing);
}

static void child_writer(const void *arg)
{
	begin();
	open_checked("data", 0, SODA_WRITABLE, NULL)[0] = byte_at(0, 0);
	turn_pass();
	turn_await();
}

static void child_all_busy(const void *arg)
{
	begin();
	refused("data", 0, SODA_WRITABLE, EBUSY);
	refused("data", 0, SODA_READ_ONLY, EBUSY);
}

/* Promise R2. */
static void test_single_writer(void **state)
{
	make_file("data", FILE_BYTES);
	beside(child_writer, child_all_busy);
	expect_passes(child_second_reader, NULL); /* the writer has gone */
}

static void child_writable(const void *arg)
{
	uint8_t *p;
	size_t bytes;

	begin();
	p = open_checked("written", 0, SODA_WRITABLE, &bytes);
	CHECK_EQ(bytes, FILE_BYTES);
	check_object(p, 0, FILE_BYTES, 0);
	fill_object(p, 0, FILE_BYTES, 1);
	CHECK_EQ(soda_sync(p, FILE_BYTES), 0);
	check_file("written", 0, FILE_BYTES, 1);
	fill_object(p, 100000, 200000, 2);
	CHECK_EQ(soda_try_free(p), 0); /* writes back */
	check_file("written", 0, 100000, 1);
	check_file("written", 100000, 200000, 2);
	CHECK_EQ(file_bytes("written"), FILE_BYTES);
	p = open_checked("written", 0, SODA_WRITABLE, NULL);
	fill_object(p, 0, FILE_BYTES, 3);
	/* and so does the end of the process */
}

static void test_writable(void **state)
{
	struct trial t = { .child = child_writable };
	struct outcome out;
	char *data;

	make_file("written", FILE_BYTES);
	trial_run(&t, &out);
	expect_quiet_success(&out);
	data = world_read_file(&world, "written", FILE_BYTES);
	for (size_t i = 0; i < FILE_BYTES; i++)
		assert_int_equal((uint8_t)data[i], byte_at(i, 3));
	free(data);
}

static void child_extend(const void *arg)
{
	size_t bytes;
	uint8_t *p;

	begin();
	refused("short", 50000, SODA_READ_ONLY, EFBIG);
	refused("short", 50000, SODA_PRIVATE, EFBIG);
	p = open_checked("short", 50000, SODA_WRITABLE, &bytes);
	CHECK_EQ(bytes, 50000);
	check_object(p, 0, 1000, 0);
	for (size_t i = 1000; i < 50000; i++)
		CHECK_EQ(p[i], 0);
	fill_object(p, 1000, 50000, 0);
	CHECK_EQ(soda_sync(p, 50000), 0);
	CHECK_EQ(file_bytes("short"), 50000);
	check_file("short", 0, 50000, 0);

	refused("made", 70000, SODA_WRITABLE, ENOENT);
	p = open_checked("made", 70000, SODA_WRITABLE | SODA_CREATE, &bytes);
	fill_object(p, 0, 70000, 4);
	CHECK_EQ(soda_sync(NULL, 0), 0);
	CHECK_EQ(file_bytes("made"), 70000);
	check_file("made", 0, 70000, 4);
}

static void test_extend_and_create(void **state)
{
	make_file("short", 1000);
	expect_passes(child_extend, NULL);
}

static void child_private(const void *arg)
{
	uint8_t *p;

	begin();
	p = open_checked("data", 0, SODA_PRIVATE, NULL);
	check_object(p, 0, FILE_BYTES, 0);
	fill_object(p, 0, FILE_BYTES, 5);
	CHECK_EQ(soda_sync(p, FILE_BYTES), 0);
	check_object(p, 0, FILE_BYTES, 5);
	CHECK_EQ(soda_try_free(p), 0);
	check_file("data", 0, FILE_BYTES, 0);
	check_object(open_checked("data", 0, SODA_PRIVATE, NULL), 0, FILE_BYTES, 0);
}

/* Promise R3. */
static void test_private_leaves_the_file(void **state)
{
	make_file("data", FILE_BYTES);
	expect_passes(child_private, NULL);
}

static void child_refused(const void *arg)
{
	begin();
	refused("absent", 0, SODA_READ_ONLY, ENOENT);
	refused("../outside", 0, SODA_READ_ONLY, EACCES);
	refused("sub/../../outside", 0, SODA_READ_ONLY, EACCES);
	refused("/etc/hostname", 0, SODA_READ_ONLY, EACCES);
	refused("link", 0, SODA_READ_ONLY, EACCES);
	refused("dirlink/outside", 0, SODA_READ_ONLY, EACCES);
	refused("../made", 4096, SODA_WRITABLE | SODA_CREATE, EACCES);
	refused("empty", 0, SODA_READ_ONLY, EINVAL);
	refused("data", 0, 0, EINVAL);
	refused("data", 0, SODA_READ_ONLY | SODA_WRITABLE, EINVAL);
	refused("data", 0, SODA_PRIVATE | SODA_CREATE, EINVAL);
	refused("data", 0, SODA_READ_ONLY | 0x100, EINVAL);
	refused("data", FILE_BYTES + 1, SODA_READ_ONLY, EFBIG);
	refused(NULL, 0, SODA_READ_ONLY, EINVAL);
	refused("", 0, SODA_READ_ONLY, EINVAL);
	check_object(open_checked("data", 0, SODA_READ_ONLY, NULL), 0, FILE_BYTES, 0);
}

static void test_refused(void **state)
{
	char path[256];

	make_file("data", FILE_BYTES);
	make_file("empty", 0);
	world_write_file(&world, "../outside", "secret", 6);
	snprintf(path, sizeof(path), "%s/link", world.export_dir);
	assert_return_code(symlink("../outside", path), errno);
	snprintf(path, sizeof(path), "%s/dirlink", world.export_dir);
	assert_return_code(symlink("..", path), errno);
	expect_passes(child_refused, NULL);
	snprintf(path, sizeof(path), "%s/../made", world.export_dir);
	assert_int_equal(access(path, F_OK), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read_only),
		cmocka_unit_test(test_many_readers_no_writer),
		cmocka_unit_test(test_single_writer),
		cmocka_unit_test(test_writable),
		cmocka_unit_test(test_extend_and_create),
		cmocka_unit_test(test_private_leaves_the_file),
		cmocka_unit_test(test_refused),
	};

	return WORLD_RUN("files", &world, false, tests);
}
