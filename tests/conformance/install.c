/* SPDX-License-Identifier: BSD-3-Clause */
/* Pages that a two-sided daemon puts into place through the userfaultfd that it was given. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance.h"
#include "soda.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

static const struct variant variants[] = {
	{ "installing", "shm://@soda-conformance-install-%d", "", SODA_ENGINE_AUTO, false, true },
	{ "installing, decorated", "shm://@soda-conformance-install-%d", "fault+", SODA_ENGINE_AUTO,
	  false, true },
};

enum { CHUNKS = 16, PAGE = 4096, PAGES = CHUNK_BYTES / PAGE };

/* A link whose data connection has been given a userfaultfd for CHUNKS chunks at `base`. */
struct room {
	struct link l;
	int uffd;
	uint8_t *base;
	uint8_t *dest; /* for READs that are not installed */
};

static void connect_data(struct env *e, struct room *r, int fd)
{
	struct soda_wire_hello hello = {
		.chunk_bytes = CHUNK_BYTES, .epoch = 1, .client_id = 9, .secret = FAKE_SECRET
	};
	struct soda_conn_options opt = { .kind = SODA_CONN_DATA,
					 .depth = 8,
					 .timeout_ms = TIMEOUT_MS,
					 .in_place = true,
					 .hand_over = true,
					 .uffd = fd };
	struct soda_wire_welcome welcome;

	assert_int_equal(soda_conn_connect(e->address, &hello, &opt, &r->l.data, &welcome, &e->why),
			 0);
	assert_true(soda_conn_installs(r->l.data));
}

/* Chunk-aligned, missing and write-protect faults. */
static void open_memory(struct room *r)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING |
					       UFFDIO_REGISTER_MODE_WP };
	uint8_t *at = mmap(NULL, (CHUNKS + 1) * CHUNK_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_true(at != MAP_FAILED);
	r->base = (uint8_t *)(((uintptr_t)at + CHUNK_BYTES - 1) / CHUNK_BYTES * CHUNK_BYTES);
	madvise(r->base, CHUNKS * CHUNK_BYTES, MADV_NOHUGEPAGE);
	r->uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	assert_true(r->uffd >= 0);
	assert_int_equal(ioctl(r->uffd, UFFDIO_API, &api), 0);
	reg.range = (struct uffdio_range){ (uintptr_t)r->base, CHUNKS * CHUNK_BYTES };
	assert_int_equal(ioctl(r->uffd, UFFDIO_REGISTER, &reg), 0);
	r->dest = malloc(CHUNK_BYTES);
	memset(r->dest, 0xee, CHUNK_BYTES);
}

static void room_open(struct env *e, struct room *r)
{
	open_memory(r);
	r->l.control = env_connect(e, "", SODA_CONN_CONTROL, 0, NULL);
	region_open(e, r->l.control, 7, SODA_WRITABLE, &r->l.mr);
	connect_data(e, r, r->uffd);
}

static void room_close(struct room *r)
{
	link_close(&r->l);
	close(r->uffd);
	munmap(r->base, CHUNKS * CHUNK_BYTES);
	free(r->dest);
}

static void post(struct room *r, unsigned chunk, void *place, bool protect)
{
	assert_int_equal(soda_conn_post_install(r->l.data, &r->l.mr, (uint64_t)chunk * CHUNK_BYTES,
						CHUNK_BYTES, r->dest, place, protect, chunk),
			 0);
	assert_int_equal(soda_conn_flush(r->l.data, false), 0);
}

static struct soda_done await_one(struct room *r)
{
	struct soda_done done;

	assert_int_equal(soda_conn_poll(r->l.data, &done, 1, (int64_t)TIMEOUT_MS * MS, 0), 1);
	assert_int_equal(done.status, 0);
	return done;
}

/* The kernel's page table entry. */
static uint64_t entry_of(const void *page)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry = 0;

	assert_int_equal(pread(fd, &entry, sizeof(entry), (off_t)((uintptr_t)page / PAGE * 8)),
			 sizeof(entry));
	close(fd);
	return entry;
}

static bool present(const void *page)
{
	return entry_of(page) >> 63;
}

static bool is_protected(const void *page)
{
	return entry_of(page) >> 57 & 1;
}

static unsigned presents(const struct room *r, unsigned chunk)
{
	unsigned n = 0;

	for (unsigned p = 0; p < PAGES; p++)
		n += present(r->base + chunk * CHUNK_BYTES + p * PAGE);
	return n;
}

static void test_install(void **state)
{
	struct env *e = *state;
	struct soda_done done;
	struct room r;

	room_open(e, &r);
	for (unsigned i = 0; i < CHUNKS; i++) {
		uint8_t *place = r.base + i * CHUNK_BYTES;

		post(&r, i, place, i % 2);
		done = await_one(&r);
		assert_int_equal(done.cookie, i);
		assert_true(done.installed);
		assert_null(done.data);
		assert_int_equal(presents(&r, i), PAGES);
		assert_int_equal(is_protected(place), i % 2);
		assert_int_equal(wrong_bytes(place, 7, (uint64_t)i * CHUNK_BYTES, CHUNK_BYTES), 0);
		assert_int_equal(r.dest[0], 0xee);
	}
	room_close(&r);
}

static void preinstall(const struct room *r, uint8_t *page, int byte)
{
	static uint8_t from[PAGE] __attribute__((aligned(4096)));
	struct uffdio_copy c = { .dst = (uintptr_t)page, .src = (uintptr_t)from, .len = PAGE };

	memset(from, byte, PAGE);
	assert_int_equal(ioctl(r->uffd, UFFDIO_COPY, &c), 0);
}

/* Pages that are there are left; whatever was first. */
static void test_present_pages(void **state)
{
	struct env *e = *state;
	struct soda_done done;
	struct room r;

	room_open(e, &r);
	for (unsigned i = 0; i < 3; i++) {
		uint8_t *place = r.base + i * CHUNK_BYTES;
		unsigned own = i * (PAGES - 1) / 2; /* the first, one in the middle, the last */

		preinstall(&r, place + own * PAGE, 0x55);
		post(&r, i, place, true);
		done = await_one(&r);
		assert_true(done.installed);
		assert_int_equal(presents(&r, i), PAGES);
		for (unsigned p = 0; p < PAGES; p++)
			if (p == own)
				assert_int_equal(place[p * PAGE], 0x55);
			else
				assert_int_equal(wrong_bytes(place + p * PAGE, 7,
							     i * CHUNK_BYTES + p * PAGE, PAGE),
						 0);
	}
	room_close(&r);
}

/* Not of our memory, or not registered: the data come as ever. */
static void test_bad_places(void **state)
{
	struct env *e = *state;
	struct soda_done done;
	struct room r;
	void *bad[4];

	room_open(e, &r);
	bad[0] = r.base + CHUNKS * CHUNK_BYTES;
	bad[1] = (void *)(uintptr_t)CHUNK_BYTES;
	bad[2] = (void *)(UINTPTR_MAX - CHUNK_BYTES + 1);
	bad[3] = NULL;
	for (unsigned i = 0; i < 4; i++) {
		post(&r, i, bad[i], true);
		done = await_one(&r);
		assert_false(done.installed);
		assert_non_null(done.data);
		assert_int_equal(wrong_bytes(done.data, 7, i * CHUNK_BYTES, CHUNK_BYTES), 0);
		assert_int_equal(r.dest[0], 0xee); /* as promised: it lies there, not here */
	}
	room_close(&r);
}

/* A descriptor of another kind is no userfaultfd, and gets no ioctl. */
static void test_bad_descriptors(void **state)
{
	struct env *e = *state;
	struct soda_done done;
	struct room r;
	int fd[4], pipes[2];

	open_memory(&r);
	r.l.control = env_connect(e, "", SODA_CONN_CONTROL, 0, NULL);
	region_open(e, r.l.control, 7, 0, &r.l.mr);
	assert_int_equal(pipe(pipes), 0);
	fd[0] = pipes[1];
	fd[1] = open("/dev/null", O_RDWR | O_CLOEXEC);
	fd[2] = soda_conn_fd(r.l.control);
	/* one that has not shaken hands */
	fd[3] = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	for (unsigned i = 0; i < 4; i++) {
		connect_data(e, &r, fd[i]);
		post(&r, i, r.base + i * CHUNK_BYTES, true);
		done = await_one(&r);
		assert_false(done.installed);
		assert_int_equal(wrong_bytes(done.data, 7, i * CHUNK_BYTES, CHUNK_BYTES), 0);
		assert_int_equal(presents(&r, i), 0);
		soda_conn_close(r.l.data);
		r.l.data = NULL;
		if (i != 2)
			close(fd[i]);
	}
	close(pipes[0]);
	room_close(&r);
}

/* After a revocation nothing is installed, however late the answer. */
static void test_revoke(void **state)
{
	struct env *e = *state;
	struct soda_done done[4];
	struct room r;
	int got = 0;

	room_open(e, &r);
	fake_stall(&e->fake, true);
	for (unsigned i = 0; i < 4; i++)
		post(&r, i, r.base + i * CHUNK_BYTES, true);
	await_count(e, &e->fake.requests, 4);
	assert_int_equal(soda_conn_revoke(r.l.data), 0);
	fake_stall(&e->fake, false);
	while (got < 4) {
		int n = soda_conn_poll(r.l.data, done, 4, (int64_t)TIMEOUT_MS * MS, 0);

		assert_true(n > 0);
		got += n;
		for (int i = 0; i < n; i++)
			assert_false(done[i].installed);
	}
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(presents(&r, i), 0);
	room_close(&r);
}

/* Revoked while it installs: each chunk is there or not, and it stays like that. */
static void test_revoke_within(void **state)
{
	struct env *e = *state;
	struct room r;

	for (unsigned round = 0; round < 40; round++) {
		unsigned there[8];

		if (round == 0)
			room_open(e, &r);
		else
			connect_data(e, &r, r.uffd);
		for (unsigned i = 0; i < 8; i++)
			post(&r, i, r.base + i * CHUNK_BYTES, true);
		usleep(round * 10);
		soda_conn_abort(r.l.data);
		while (soda_conn_revoke(r.l.data))
			usleep(100);
		for (unsigned i = 0; i < 8; i++) {
			there[i] = presents(&r, i);
			assert_true(there[i] == 0 || there[i] == PAGES);
		}
		usleep(1000);
		for (unsigned i = 0; i < 8; i++)
			assert_int_equal(presents(&r, i), there[i]);
		soda_conn_close(r.l.data);
		r.l.data = NULL;
		madvise(r.base, CHUNKS * CHUNK_BYTES, MADV_DONTNEED);
	}
	room_close(&r);
}

/*
 * READs for the node's store: the answer may be that it has them, without data; only to those that
 * are marked, and among others.
 */
static void test_stored(void **state)
{
	struct env *e = *state;
	struct soda_done done;
	struct room r;

	room_open(e, &r);
	for (unsigned i = 0; i < 3 * CHUNKS; i++) {
		unsigned chunk = i % CHUNKS;
		bool marked = i % 3, stores = i % 2;

		pthread_mutex_lock(&e->fake.lock);
		e->fake.stores = stores;
		pthread_mutex_unlock(&e->fake.lock);
		if (!marked)
			post(&r, chunk, NULL, false);
		else
			assert_int_equal(soda_conn_post_stored(r.l.data, &r.l.mr,
							       (uint64_t)chunk * CHUNK_BYTES,
							       CHUNK_BYTES, r.dest, chunk),
					 0);
		assert_int_equal(soda_conn_flush(r.l.data, false), 0);
		done = await_one(&r);
		assert_int_equal(done.cookie, chunk);
		assert_int_equal(done.stored, marked && stores);
		assert_false(done.installed);
		if (done.stored)
			assert_null(done.data);
		else
			assert_int_equal(*((const uint8_t *)done.data + 99),
					 fake_byte(7, (uint64_t)chunk * CHUNK_BYTES + 99));
	}
	assert_int_equal(fake_count(&e->fake, &e->fake.stored), 2 * CHUNKS);
	assert_int_equal(r.dest[99], 0xee);
	room_close(&r);
}

/* The client is killed with READs under way: only it is harmed. */
static void test_client_dies(void **state)
{
	struct env *e = *state;
	unsigned gone;
	struct room r;
	int status;
	pid_t child;

	room_open(e, &r);
	fake_stall(&e->fake, true);
	child = fork();
	if (child == 0) {
		struct room own = { .l.mr = r.l.mr };

		open_memory(&own);
		connect_data(e, &own, own.uffd);
		for (unsigned i = 0; i < 8; i++)
			post(&own, i, own.base + i * CHUNK_BYTES, true);
		for (;;)
			pause();
	}
	await_count(e, &e->fake.requests, 8);
	gone = fake_count(&e->fake, &e->fake.gone);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, &status, 0), child);
	fake_stall(&e->fake, false);
	await_count(e, &e->fake.gone, gone + 1);
	post(&r, 1, r.base + CHUNK_BYTES, true);
	assert_true(await_one(&r).installed);
	room_close(&r);
}

#define INSTALL(f)                                                                                 \
	{                                                                                          \
#f, f, env_setup, env_teardown, NULL                                               \
	}

int run_install(void)
{
	int failed = 0;

	for (unsigned v = 0; v < sizeof(variants) / sizeof(variants[0]); v++) {
		struct CMUnitTest tests[] = {
			INSTALL(test_install),	   INSTALL(test_present_pages),
			INSTALL(test_bad_places),  INSTALL(test_bad_descriptors),
			INSTALL(test_revoke),	   INSTALL(test_revoke_within),
			INSTALL(test_client_dies), INSTALL(test_stored),
		};

		for (unsigned i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
			tests[i].initial_state = (void *)(uintptr_t)&variants[v];
		failed += _cmocka_run_group_tests(variants[v].name, tests,
						  sizeof(tests) / sizeof(tests[0]), NULL, NULL);
	}
	return failed;
}
