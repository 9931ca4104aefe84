/* SPDX-License-Identifier: BSD-3-Clause */
/* The server's files below the protocol: old kernels, failing disks, loads at the same time. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

#include "mem_server/base/counters.h"
#include "mem_server/files/beneath.h"
#include "mem_server/files/content.h"
#include "mem_server/files/file_io.h"
#include "mem_server/files/files.h"
#include "mem_server/files/mark.h"
#include "soda.h"
#include "trust/crypto.h"

#define MIB (1ull << 20)
#define BIG_BYTES (40 * MIB + 12345) /* more pieces than the queue is deep */

static char dir[] = "/tmp/soda-test-XXXXXX";
static int dir_fd;
static struct soda_store store;
static struct soda_files files;
static struct soda_account account;
static struct soda_why why;
static uint8_t *big;

static void write_file(const char *name, const void *bytes, size_t n)
{
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert_int_equal(write(fd, bytes, n), n);
	close(fd);
}

static int start(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	dir_fd = open(dir, O_DIRECTORY);
	soda_store_init(&store, 256 * MIB);
	big = malloc(BIG_BYTES);
	for (size_t i = 0; i < BIG_BYTES; i++)
		big[i] = (uint8_t)(i ^ i >> 12);
	write_file("big", big, BIG_BYTES);
	write_file("file", "text", 4);
	mkdirat(dir_fd, "sub", 0755);
	write_file("sub/file", "text", 4);
	if (symlinkat("file", dir_fd, "link") || symlinkat("sub", dir_fd, "sublink"))
		return -1;
	return soda_files_init(&files, &store, dir);
}

static int stop(void **state)
{
	char command[64];

	free(big);
	close(files.dir);
	close(dir_fd);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

static int open_file(const char *name, uint64_t bytes, unsigned flags, struct soda_file **file_p)
{
	const struct soda_file_request req = {
		.name = name, .bytes = bytes, .flags = flags, .account = &account
	};

	return soda_files_open(&files, &req, file_p, &why);
}

static int open_marked(uint64_t mark, bool again)
{
	const struct soda_file_request req = { .name = "file",
					       .flags = SODA_WIRE_WRITABLE,
					       .mark = mark,
					       .again = again,
					       .account = &account };
	struct soda_file *file;
	int r = soda_files_open(&files, &req, &file, &why);

	if (r)
		return r;
	file->memory.dirty[0] = 1;
	assert_int_equal(soda_file_sync(file, &why), 0);
	soda_files_close(&files, file, &account);
	return 0;
}

/* Promise R10. */
static void check_marks(void **state)
{
	struct timespec times[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };
	int fd = openat(dir_fd, "file", O_RDWR | O_CLOEXEC);

	assert_return_code(fd, errno);
	assert_int_equal(open_marked(1, true), -ESTALE);
	assert_int_equal(open_marked(1, false), 0);
	assert_int_equal(open_marked(1, true), 0);
	assert_int_equal(open_marked(2, false), 0);
	assert_int_equal(open_marked(1, true), -ESTALE);
	assert_int_equal(open_marked(2, true), 0);
	assert_int_equal(open_marked(0, false), 0); /* an older client's */
	assert_int_equal(open_marked(2, true), -ESTALE);
	assert_int_equal(open_marked(3, false), 0);
	assert_int_equal(futimens(fd, times), 0); /* somebody else's change */
	assert_int_equal(open_marked(3, true), -ESTALE);
	assert_int_equal(open_marked(3, false), 0);
	soda_mark_change(fd, 3); /* the server was killed then: its write-back moved the times */
	assert_int_equal(futimens(fd, times), 0);
	assert_int_equal(open_marked(3, true), 0);
	close(fd);
}

static void expect_opens(const char *name, bool opens)
{
	int fd = soda_beneath_open(dir_fd, name, O_RDONLY, NULL, &why);

	assert_int_equal(fd >= 0, opens);
	if (fd >= 0)
		close(fd);
}

/* Before Linux 5.6: no symbolic links at all, the rest as ever. */
static void check_walk(void **state)
{
	soda_beneath_walk_only = true;
	expect_opens("file", true);
	expect_opens("sub/file", true);
	expect_opens(".//sub/./file", true);
	expect_opens("link", false);
	expect_opens("sublink/file", false);
	expect_opens("sub", false);
	expect_opens("file/file", false);
	expect_opens("nothing", false);
	soda_beneath_walk_only = false;
	expect_opens("link", true);
	expect_opens("sublink/file", true);
}

static void check_create_by_walking(void **state)
{
	mode_t mask = umask(0);
	struct soda_file *file;
	struct stat st;

	for (int walk = 0; walk < 2; walk++) {
		soda_beneath_walk_only = walk;
		assert_int_equal(open_file("sub/new", 10, SODA_WRITABLE | SODA_CREATE, &file), 0);
		soda_files_close(&files, file, &account);
		assert_int_equal(fstatat(dir_fd, "sub/new", &st, 0), 0);
		assert_int_equal(st.st_mode & 07777, 0660);
		assert_int_equal(unlinkat(dir_fd, "sub/new", 0), 0);
		assert_int_equal(
			open_file("sub/new", 1ull << 60, SODA_WRITABLE | SODA_CREATE, &file),
			-ENOSPC);
		assert_int_equal(unlinkat(dir_fd, "sub/new", 0), -1);
	}
	soda_beneath_walk_only = false;
	umask(mask);
}

static void check_big_load(void **state)
{
	struct soda_file *file;

	for (int plain = 0; plain < 2; plain++) {
		soda_file_io_plain_only = plain;
		assert_int_equal(open_file("big", 0, SODA_READ_ONLY, &file), 0);
		assert_int_equal(file->bytes, BIG_BYTES);
		assert_memory_equal(file->memory.map, big, BIG_BYTES);
		soda_files_close(&files, file, &account);
	}
	soda_file_io_plain_only = false;
	assert_int_equal(soda_store_free_bytes(&store), 256 * MIB);
	assert_int_equal(account.used, 0);
}

/* A part of a file, and two parts are two copies. */
static void check_prefix(void **state)
{
	struct soda_file *a, *b, *c;

	assert_int_equal(open_file("big", 5000, SODA_READ_ONLY, &a), 0);
	assert_int_equal(open_file("big", 5000, SODA_READ_ONLY, &b), 0);
	assert_int_equal(open_file("big", 5001, SODA_READ_ONLY, &c), 0);
	assert_ptr_equal(a, b);
	assert_ptr_not_equal(a, c);
	assert_memory_equal(a->memory.map, big, 5000);
	assert_int_equal(a->memory.map[5000], 0);
	assert_int_equal(account.used, 6 * MIB);
	soda_files_close(&files, a, &account);
	soda_files_close(&files, b, &account);
	soda_files_close(&files, c, &account);
}

static void *load(void *arg)
{
	struct soda_file **file_p = arg;

	if (open_file("big", 0, SODA_READ_ONLY, file_p))
		*file_p = NULL;
	return NULL;
}

/* Many at once: one loads, the others wait for it. */
static void check_joined_loads(void **state)
{
	enum { LOADERS = 8 };
	struct soda_file *got[LOADERS];
	uint64_t before = soda_count_get(SODA_COUNT_files_loaded);
	pthread_t threads[LOADERS];

	for (int i = 0; i < LOADERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, load, &got[i]), 0);
	for (int i = 0; i < LOADERS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(soda_count_get(SODA_COUNT_files_loaded), before + 1);
	for (int i = 0; i < LOADERS; i++) {
		assert_ptr_equal(got[i], got[0]);
		soda_files_close(&files, got[i], &account);
	}
	assert_int_equal(soda_store_free_bytes(&store), 256 * MIB);
}

/* Promise R1. */
static void check_ids(void **state)
{
	struct soda_file a = { .version = { .dev = 1, .ino = 2, .size = 3 } }, b = a;

	assert_int_equal(soda_file_id(&a), soda_file_id(&b));
	b.version.mtime.tv_nsec = 1;
	assert_int_not_equal(soda_file_id(&a), soda_file_id(&b));
	b = a;
	b.version.ctime.tv_nsec = 1; /* who rewrites a file may set its mtime back */
	assert_int_not_equal(soda_file_id(&a), soda_file_id(&b));
	b = a;
	b.version.size = 4;
	assert_int_not_equal(soda_file_id(&a), soda_file_id(&b));
}

/* What could not be written is dirty still, and goes with the next sync. */
static void check_failing_sync(void **state)
{
	struct soda_file *file;
	uint8_t got[4];
	int good, bad, fd;

	for (int plain = 0; plain < 2; plain++) {
		soda_file_io_plain_only = plain;
		assert_int_equal(open_file("sub/full", 200000, SODA_WRITABLE | SODA_CREATE, &file),
				 0);
		memcpy(file->memory.map + 131072, "data", 4);
		file->memory.dirty[2] = 1;
		good = file->fd;
		bad = open("/dev/full", O_RDWR);
		file->fd = bad;
		assert_int_equal(soda_file_sync(file, &why), -ENOSPC);
		assert_non_null(strstr(why.text, "No space left"));
		assert_int_equal(file->memory.dirty[2], 1);
		assert_int_equal(file->memory.dirty[1], 0);
		close(bad);
		file->fd = good;
		assert_int_equal(soda_file_sync(file, &why), 0);
		assert_int_equal(file->memory.dirty[2], 0);
		fd = openat(dir_fd, "sub/full", O_RDONLY);
		assert_int_equal(pread(fd, got, 4, 131072), 4);
		assert_memory_equal(got, "data", 4);
		close(fd);
		soda_files_close(&files, file, &account);
		unlinkat(dir_fd, "sub/full", 0);
	}
	soda_file_io_plain_only = false;
}

/*
 * What a server before this one wrote, and did not bring to the disk: the first sync does, with
 * nothing dirty.  Where that fails the kernel has given it up, and all of it is written again.  A
 * pipe stands for the disk that fails.
 */
static void check_first_sync(void **state)
{
	struct soda_file *file;
	uint64_t synced;
	int good, pipes[2];

	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(open_file("big", 0, SODA_WRITABLE, &file), 0);
	good = file->fd;
	file->fd = pipes[1];
	assert_int_equal(soda_file_sync(file, &why), -EINVAL);
	file->fd = good;
	synced = soda_count_get(SODA_COUNT_bytes_synced);
	assert_int_equal(soda_file_sync(file, &why), 0);
	assert_int_equal(soda_count_get(SODA_COUNT_bytes_synced), synced + BIG_BYTES);
	file->fd = pipes[1];
	assert_int_equal(soda_file_sync(file, &why), 0); /* nothing to do */
	file->fd = good;
	soda_files_close(&files, file, &account);
	close(pipes[0]);
	close(pipes[1]);
	check_big_load(state);
}

/* Every unit dirty: more writes than the queue is deep, and not a byte behind the end. */
static void check_big_sync(void **state)
{
	struct soda_file *file;
	struct stat st;

	assert_int_equal(open_file("big", 0, SODA_WRITABLE, &file), 0);
	for (size_t i = 0; i < BIG_BYTES; i++)
		file->memory.map[i] = big[i] ^= 0xff;
	memset(file->memory.dirty, 1, (BIG_BYTES + SODA_DIRTY_UNIT - 1) / SODA_DIRTY_UNIT);
	memset(file->memory.map + BIG_BYTES, 0xee, 100);
	assert_int_equal(soda_file_sync(file, &why), 0);
	soda_files_close(&files, file, &account);
	assert_int_equal(fstatat(dir_fd, "big", &st, 0), 0);
	assert_int_equal(st.st_size, BIG_BYTES);
	check_big_load(state);
}

/* How many descriptors this process has of a file. */
static int descriptors_of(const char *name)
{
	char path[64], link[64], want[128], is[256];
	int n = 0;

	snprintf(want, sizeof(want), "%s/%s", realpath(dir, path), name);
	for (int fd = 0; fd < 256; fd++) {
		ssize_t bytes;

		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		bytes = readlink(link, is, sizeof(is));
		n += bytes == (ssize_t)strlen(want) && !memcmp(is, want, (size_t)bytes);
	}
	return n;
}

struct creator {
	struct soda_account account;
	struct soda_file *file;
	int result;
};

static void *create(void *arg)
{
	struct creator *c = arg;
	const struct soda_file_request req = { .name = "race",
					       .bytes = MIB,
					       .flags = SODA_WRITABLE | SODA_CREATE,
					       .account = &c->account };
	struct soda_why own;

	c->result = soda_files_open(&files, &req, &c->file, &own);
	return NULL;
}

static void await_descriptors(const char *name, int n)
{
	for (int i = 0; i < 6000 && descriptors_of(name) < n; i++)
		usleep(10000);
	assert_int_equal(descriptors_of(name), n);
}

/*
 * Two create one file, the first of whom has no quota for it: the other one's file must not lose
 * its name.  Both are held up where they are charged, when the file is there.
 */
static void check_failed_create(void **state)
{
	struct creator poor = { .account.quota = 1 }, rich = { .account.quota = 0 };
	pthread_t threads[2];
	struct stat named, opened;

	pthread_mutex_lock(&store.lock);
	assert_int_equal(pthread_create(&threads[0], NULL, create, &poor), 0);
	await_descriptors("race", 1);
	assert_int_equal(pthread_create(&threads[1], NULL, create, &rich), 0);
	await_descriptors("race", 2);
	pthread_mutex_unlock(&store.lock);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	assert_int_equal(poor.result, -EDQUOT);
	assert_int_equal(rich.result, 0);
	assert_int_equal(fstatat(dir_fd, "race", &named, 0), 0);
	assert_int_equal(fstat(rich.file->fd, &opened), 0);
	assert_int_equal(named.st_ino, opened.st_ino);
	soda_files_close(&files, rich.file, &rich.account);
	assert_int_equal(unlinkat(dir_fd, "race", 0), 0);
}

/* fallocate() waits until this is set.  Relaxed, so that nothing but the product's locks orders. */
static bool may_extend = true;
static bool extends;

int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
	static int (*real)(int, int, off_t, off_t);

	if (!real)
		real = (int (*)(int, int, off_t, off_t))dlsym(RTLD_NEXT, "fallocate");
	__atomic_store_n(&extends, true, __ATOMIC_RELAXED);
	while (!__atomic_load_n(&may_extend, __ATOMIC_RELAXED))
		usleep(1000);
	return real(fd, mode, offset, bytes);
}

/* Who is in the way is seen while its load is about to change what is known of the file. */
static void check_rival_of_a_load(void **state)
{
	struct creator first = { .account.quota = 0 };
	struct soda_file *second;
	pthread_t thread;

	__atomic_store_n(&extends, false, __ATOMIC_RELAXED);
	__atomic_store_n(&may_extend, false, __ATOMIC_RELAXED);
	assert_int_equal(pthread_create(&thread, NULL, create, &first), 0);
	while (!__atomic_load_n(&extends, __ATOMIC_RELAXED))
		usleep(1000);
	assert_int_equal(open_file("race", MIB, SODA_WRITABLE, &second), -EBUSY);
	__atomic_store_n(&may_extend, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	assert_int_equal(first.result, 0);
	assert_int_equal(first.file->version.size, MIB);
	soda_files_close(&files, first.file, &first.account);
	assert_int_equal(unlinkat(dir_fd, "race", 0), 0);
}

/* A FIFO must not hold the server up, a file must not answer EAGAIN. */
static void check_blocks(void **state)
{
	int fd;

	for (int walk = 0; walk < 2; walk++) {
		soda_beneath_walk_only = walk;
		fd = soda_beneath_open(dir_fd, "file", O_RDONLY, NULL, &why);
		assert_true(fd >= 0);
		assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
		close(fd);
	}
	soda_beneath_walk_only = false;
}

/* What io_uring answers to every request while this is set. */
static bool always_again;

int io_uring_submit_and_wait(struct io_uring *ring, unsigned wait)
{
	static int (*real)(struct io_uring * ring, unsigned wait);
	unsigned tail;
	int r;

	if (!real)
		real = (int (*)(struct io_uring *, unsigned))dlsym(RTLD_NEXT,
								   "io_uring_submit_and_wait");
	r = real(ring, wait);
	tail = __atomic_load_n(ring->cq.ktail, __ATOMIC_ACQUIRE);
	for (unsigned i = *ring->cq.khead; always_again && i != tail; i++)
		ring->cq.cqes[i & *ring->cq.kring_mask].res = -EAGAIN;
	return r;
}

/* A file system that always has "try again" for an answer is not asked for ever. */
static void check_again(void **state)
{
	always_again = true;
	alarm(20);
	check_big_load(state);
	alarm(0);
	always_again = false;
}

/* What the kernel says of access control lists while this is set. */
static int list_error;

ssize_t getxattr(const char *path, const char *name, void *value, size_t bytes)
{
	static ssize_t (*real)(const char *, const char *, void *, size_t);

	if (!real)
		real = (ssize_t(*)(const char *, const char *, void *, size_t))dlsym(RTLD_NEXT,
										     "getxattr");
	if (!list_error)
		return real(path, name, value, bytes);
	errno = list_error;
	return -1;
}

/* Where it cannot be told whether a file has a list (no /proc), nobody gets it by its group's bits.
 */
static void check_unknown_list(void **state)
{
	const struct soda_file_user user = { .uid = geteuid() + 1, .gid = getegid() };
	int fd = openat(dir_fd, "listed", O_RDWR | O_CREAT | O_EXCL, 0660);

	assert_true(fd >= 0);
	assert_int_equal(fchmod(fd, 0660), 0);
	close(fd);
	list_error = ENODATA;
	assert_int_equal(fchmodat(dir_fd, ".", 0755, 0), 0);
	fd = soda_beneath_open(dir_fd, "listed", O_RDONLY, &user, &why);
	assert_true(fd >= 0);
	close(fd);
	list_error = ENOENT;
	assert_int_equal(soda_beneath_open(dir_fd, "listed", O_RDONLY, &user, &why), -EACCES);
	list_error = 0;
	assert_int_equal(unlinkat(dir_fd, "listed", 0), 0);
}

/* What is no file is not opened, not even to see that: a device may be set going by it. */
static void check_no_device_is_opened(void **state)
{
	const struct soda_file_user user = { .uid = geteuid(), .gid = getegid() };
	int events = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	char path[128], event[sizeof(struct inotify_event) + NAME_MAX + 1];

	assert_true(events >= 0);
	assert_int_equal(mkfifoat(dir_fd, "pipe", 0600), 0);
	snprintf(path, sizeof(path), "%s/pipe", dir);
	assert_true(inotify_add_watch(events, path, IN_OPEN) >= 0);
	assert_int_equal(soda_beneath_open(dir_fd, "pipe", O_RDWR, &user, &why), -EACCES);
	assert_non_null(strstr(why.text, "not a regular file"));
	assert_int_equal(read(events, event, sizeof(event)), -1);
	assert_int_equal(errno, EAGAIN);
	close(events);
	assert_int_equal(unlinkat(dir_fd, "pipe", 0), 0);
}

/* The content of the file, waited for. */
static struct soda_wire_content content_of(struct soda_file *file, const char *name, uint64_t bytes)
{
	const struct soda_file_request req = { .name = name, .bytes = bytes };
	struct soda_wire_content content = { 0 };

	for (int i = 0; i < 10000 && content.state != SODA_WIRE_CONTENT_KNOWN; i++) {
		assert_int_equal(file ? soda_content_of_file(&files, file, &content, &why)
				      : soda_content_of_name(&files, &req, &content, &why),
				 0);
		if (content.state != SODA_WIRE_CONTENT_KNOWN)
			usleep(1000);
	}
	assert_int_equal(content.state, SODA_WIRE_CONTENT_KNOWN);
	return content;
}

static void expect_hash(const struct soda_wire_content *content, const char *hex)
{
	char text[2 * SODA_WIRE_HASH_BYTES + 1];

	for (unsigned i = 0; i < SODA_WIRE_HASH_BYTES; i++)
		snprintf(text + 2 * i, 3, "%02x", content->hash[i]);
	assert_string_equal(text, hex);
}

/* A file's content is named by its SHA-256: at once where it is small, of memory and file alike. */
static void check_contents(void **state)
{
	/* sha256sum of "text", and of "te" */
	static const char text_hash[] =
		"982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1";
	uint64_t before = soda_count_get(SODA_COUNT_files_hashed);
	struct soda_wire_content here, there, other;
	struct soda_file *file, *writes;

	there = content_of(NULL, "file", 0);
	expect_hash(&there, text_hash);
	assert_int_equal(there.file_bytes, 4);
	assert_int_equal(open_file("file", 0, SODA_READ_ONLY, &file), 0);
	here = content_of(file, NULL, 0);
	assert_memory_equal(&here, &there, sizeof(here));
	assert_int_equal(soda_count_get(SODA_COUNT_files_hashed), before + 1); /* remembered */
	other = content_of(NULL, "file", 2);
	assert_memory_not_equal(other.hash, there.hash, sizeof(there.hash));

	/* the file changes, what is open does not; nor does a changed file pass for the old one */
	write_file("file", "TEXT", 4);
	here = content_of(file, NULL, 0);
	expect_hash(&here, text_hash);
	there = content_of(NULL, "file", 0);
	assert_memory_not_equal(here.hash, there.hash, sizeof(there.hash));
	soda_files_close(&files, file, &account);
	assert_int_equal(open_file("file", 0, SODA_READ_ONLY, &file), 0);
	here = content_of(file, NULL, 0);
	assert_memory_equal(&here, &there, sizeof(here));
	soda_files_close(&files, file, &account);
	write_file("file", "text", 4);

	assert_int_equal(soda_content_of_name(&files,
					      &(struct soda_file_request){ .name = "nothing" },
					      &here, &why),
			 -ENOENT);
	assert_int_equal(soda_content_of_name(
				 &files, &(struct soda_file_request){ .name = "file", .bytes = 5 },
				 &here, &why),
			 -EFBIG);
	assert_int_equal(open_file("file", 0, SODA_WRITABLE, &writes), 0);
	assert_int_equal(soda_content_of_file(&files, writes, &here, &why), -EINVAL);
	soda_files_close(&files, writes, &account);
}

/* A large one is hashed by a thread, which gives up when nobody has the file open any more. */
static void check_large_contents(void **state)
{
	struct soda_wire_content here, there;
	struct soda_file *file;

	assert_int_equal(open_file("big", 0, SODA_READ_ONLY, &file), 0);
	assert_int_equal(soda_content_of_file(&files, file, &here, &why), 0);
	assert_int_equal(here.state, SODA_WIRE_CONTENT_COMPUTING);
	here = content_of(file, NULL, 0);
	there = content_of(NULL, "big", 0);
	assert_memory_equal(&here, &there, sizeof(here));
	soda_files_close(&files, file, &account);

	assert_int_equal(open_file("big", BIG_BYTES - 1, SODA_READ_ONLY, &file), 0);
	assert_int_equal(soda_content_of_file(&files, file, &here, &why), 0);
	soda_files_close(&files, file, &account);
	for (int i = 0; i < 10000 && soda_store_free_bytes(&store) != 256 * MIB; i++)
		usleep(1000);
	assert_int_equal(soda_store_free_bytes(&store), 256 * MIB);
	assert_int_equal(open_file("big", BIG_BYTES - 2, SODA_READ_ONLY, &file), 0);
	assert_int_equal(soda_content_of_file(&files, file, &here, &why), 0);
	soda_contents_stop(&files); /* with one under way */
	assert_int_equal(soda_content_of_file(&files, file, &here, &why), 0);
	assert_int_equal(here.state, SODA_WIRE_CONTENT_COMPUTING);
	soda_files_close(&files, file, &account);
	assert_int_equal(soda_store_free_bytes(&store), 256 * MIB);
}

/* Without OpenSSL it is refused, with a sentence. */
static void check_no_contents(void **state)
{
	struct soda_wire_content content;

	assert_int_equal(soda_content_of_name(&files, &(struct soda_file_request){ .name = "file" },
					      &content, &why),
			 -ENOTSUP);
	assert_non_null(strstr(why.text, "SHA-256"));
}

static bool have_crypto(void)
{
	struct soda_conf_error err;

	return !soda_crypto_ready(&err);
}

static void check_contents_if_any(void **state)
{
	if (have_crypto()) {
		check_contents(state);
		check_large_contents(state); /* the last one: it ends the thread */
	} else {
		check_no_contents(state);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_failed_create),
		cmocka_unit_test(check_rival_of_a_load),
		cmocka_unit_test(check_blocks),
		cmocka_unit_test(check_marks),
		cmocka_unit_test(check_walk),
		cmocka_unit_test(check_create_by_walking),
		cmocka_unit_test(check_big_load),
		cmocka_unit_test(check_again),
		cmocka_unit_test(check_prefix),
		cmocka_unit_test(check_joined_loads),
		cmocka_unit_test(check_ids),
		cmocka_unit_test(check_failing_sync),
		cmocka_unit_test(check_first_sync),
		cmocka_unit_test(check_big_sync),
		cmocka_unit_test(check_unknown_list),
		cmocka_unit_test(check_no_device_is_opened),
		cmocka_unit_test(check_contents_if_any),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
