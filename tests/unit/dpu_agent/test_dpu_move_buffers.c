/* SPDX-License-Identifier: BSD-3-Clause */
/* Named buffers: who may have and read them, which copy is filled next, and how long they live. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "dpu_agent/movement/buffers.h"

enum { PAGE = 4096, BYTES = 3 * PAGE - 100, BUDGET = 64 * PAGE, SOON_MS = 20, LONG_MS = 20000 };

static const struct soda_peer_info me = { .local = true, .uid = 1000, .gid = 100 };
static const struct soda_peer_info far = { .uid = (uid_t)-1, .gid = (gid_t)-1 };

static struct soda_buffers all;
static struct soda_why why;

static int setup(void **state)
{
	soda_buffers_init(&all, BUDGET);
	return 0;
}

/* No buffer is left, and no memory is counted: soda_buffers_destroy() asserts that. */
static int teardown(void **state)
{
	soda_buffers_destroy(&all);
	return 0;
}

static int try_reserve(const char *name, uint64_t bytes, unsigned copies, unsigned mode,
		       unsigned flags, const struct soda_peer_info *owner, struct soda_buffer **b_p)
{
	struct soda_wire_move_reserve ask = { bytes, copies, mode, flags };

	why.text[0] = 0;
	return soda_buffer_reserve(&all, &ask, name, strlen(name), owner, b_p, &why);
}

static struct soda_buffer *reserve(unsigned copies, unsigned flags)
{
	struct soda_buffer *b = NULL;

	assert_int_equal(try_reserve("heat", BYTES, copies, 0, flags, &me, &b), 0);
	return b;
}

/* Fill and publish: a step whose bytes are its number. */
static uint64_t step(struct soda_buffer *b)
{
	struct soda_copy *c;

	assert_int_equal(soda_buffer_fill(&all, b, &c), 0);
	memset(c->memory, (int)(b->steps + 1), b->bytes);
	return soda_buffer_publish(&all, b, c);
}

static void open_as(struct soda_buffer_reader *r, const struct soda_peer_info *who, int want)
{
	int ret = soda_buffer_open(&all, "heat", 4, who, 0, r, &why);

	if (ret != want)
		fail_msg("%d, expected %d: %s", ret, want, why.text);
}

static uint64_t next(struct soda_buffer_reader *r, uint64_t after)
{
	struct soda_wire_move_found found = { 0 };

	assert_int_equal(soda_buffer_next(&all, r, after, 0, &found), 0);
	if (found.step) {
		const struct soda_copy *c = soda_buffer_held(&all, r, found.step);

		assert_ptr_equal(c, &r->buffer->copies[found.copy]);
		assert_int_equal(c->memory[0], (uint8_t)found.step);
		assert_int_equal(c->memory[BYTES - 1], (uint8_t)found.step);
	}
	return found.step;
}

static void test_refused(void **state)
{
	struct soda_buffer *b = NULL, *other;

	assert_int_equal(try_reserve("", BYTES, 1, 0, 0, &me, &b), -EINVAL);
	assert_int_equal(try_reserve("a b", BYTES, 1, 0, 0, &me, &b), -EINVAL);
	assert_int_equal(try_reserve("a", 0, 1, 0, 0, &me, &b), -EINVAL);
	assert_int_equal(try_reserve("a", UINT64_MAX, 1, 0, 0, &me, &b), -EINVAL);
	assert_int_equal(try_reserve("a", BYTES, 65, 0, 0, &me, &b), -EINVAL);
	assert_int_equal(try_reserve("a", BYTES, 1, 0600, 0, &me, &b), -EINVAL);
	assert_int_equal(try_reserve("a", BYTES, 1, 0, 4, &me, &b), -EINVAL);
	assert_int_equal(try_reserve("a", SODA_MOVE_BYTES_MAX, 64, 0, 0, &me, &b), -ENOSPC);
	assert_int_equal(try_reserve("a", BYTES, 1, 0440, 0, &far, &b), -EPERM);
	assert_non_null(strstr(why.text, "0004"));
	assert_null(b);
	assert_int_equal(all.reserved.all, 0);
	assert_int_equal(try_reserve("a", BYTES, 1, 0, 0, &me, &b), 0);
	assert_int_equal(try_reserve("a", BYTES, 1, 0, 0, &me, &other), -EEXIST);
	soda_buffer_end(&all, b);
	assert_int_equal(try_reserve("a", BYTES, 1, 0444, 0, &far, &b), 0);
	soda_buffer_end(&all, b);
}

/* Whole pages of all copies count, until the last one who uses them has gone. */
static void test_budget(void **state)
{
	struct soda_buffer *b = NULL, *other = NULL;
	struct soda_buffer_reader r = { 0 };
	struct soda_copy *c;

	assert_int_equal(try_reserve("heat", BYTES, 20, 0, 0, &me, &b), 0);
	assert_int_equal(all.reserved.all, 60 * PAGE);
	assert_int_equal(try_reserve("b", PAGE + 1, 4, 0, 0, &me, &other), -ENOSPC);
	assert_non_null(strstr(why.text, "--move-memory"));
	assert_int_equal(try_reserve("b", PAGE, 4, 0, 0, &me, &other), 0);
	soda_buffer_end(&all, other);
	step(b);
	open_as(&r, &me, 0);
	assert_int_equal(next(&r, 0), 1);
	assert_int_equal(soda_buffer_fill(&all, b, &c), 0);
	soda_buffer_end(&all, b);
	assert_int_equal(all.n, 0);
	assert_int_equal(all.reserved.all, 60 * PAGE); /* a reader and a fill */
	soda_buffer_close(&all, &r);
	assert_int_equal(all.reserved.all, 60 * PAGE);
	soda_buffer_abandon(&all, b, c);
	assert_int_equal(all.reserved.all, 0);
	/* what is staged is beside the copies */
	assert_int_equal(try_reserve("b", PAGE + 1, 2, 0, SODA_WIRE_MOVE_STAGE, &me, &b), 0);
	assert_int_equal(all.reserved.all, 6 * PAGE);
	b->stage[PAGE] = 1;
	soda_buffer_end(&all, b);
	assert_int_equal(all.reserved.all, 0);
}

/* What a reader gets can be neither written to nor made smaller, nor mapped writable. */
static void test_sealed(void **state)
{
	struct soda_buffer *b = reserve(1, 0);
	int fd = b->copies[0].fd;
	char path[64];
	int again;

	assert_true(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
	assert_int_equal(pwrite(fd, "x", 1, 0), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(fd, PAGE), -1);
	assert_int_equal(ftruncate(fd, 100 * PAGE), -1);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE), -1);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	/* nor by opening it anew */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR);
	if (again >= 0) {
		assert_true(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, again, 0) == MAP_FAILED);
		close(again);
	}
	step(b);
	assert_int_equal(b->copies[0].memory[5], 1);
	soda_buffer_end(&all, b);
}

static void test_rights(void **state)
{
	struct soda_peer_info group = {
		.local = true, .uid = 2, .gid = 3, .groups_n = 1, .groups = { 100 }
	};
	struct soda_peer_info other = { .local = true, .uid = 2, .gid = 3 };
	struct soda_peer_info root = { .local = true };
	static const struct {
		unsigned mode;
		int me, group, other, far;
	} cases[] = {
		{ 0400, 0, -EACCES, -EACCES, -EACCES }, { 0040, -EACCES, 0, -EACCES, -EACCES },
		{ 0004, -EACCES, -EACCES, 0, 0 },	{ 0444, 0, 0, 0, 0 },
		{ 0, 0, -EACCES, -EACCES, -EACCES },
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct soda_buffer_reader r[5] = { 0 };
		struct soda_buffer *b = NULL;

		assert_int_equal(try_reserve("heat", BYTES, 1, cases[i].mode, 0, &me, &b), 0);
		open_as(&r[0], &me, cases[i].me);
		open_as(&r[1], &group, cases[i].group);
		open_as(&r[2], &other, cases[i].other);
		open_as(&r[3], &far, cases[i].far);
		open_as(&r[4], &root, 0);
		for (unsigned k = 0; k < 5; k++)
			soda_buffer_close(&all, &r[k]);
		soda_buffer_end(&all, b);
	}
}

/* A uid that nobody has vouched for is nobody's: not even that of another unknown one. */
static void test_unknown_owner(void **state)
{
	struct soda_peer_info strange = { .local = true, .uid = (uid_t)-1, .gid = (gid_t)-1 };
	struct soda_buffer_reader r = { 0 };
	struct soda_buffer *b = NULL;

	assert_int_equal(try_reserve("heat", BYTES, 1, 0404, 0, &far, &b), 0);
	b->mode = 0400;
	open_as(&r, &strange, -EACCES);
	soda_buffer_end(&all, b);
}

/* Steps are read in their order; one that is being filled, or was given up, is never seen. */
static void test_steps(void **state)
{
	struct soda_buffer *b = reserve(3, 0);
	struct soda_buffer_reader r = { 0 };
	struct soda_wire_move_found found;
	struct soda_copy *c, *d;

	open_as(&r, &me, 0);
	assert_int_equal(next(&r, 0), 0);
	assert_int_equal(soda_buffer_fill(&all, b, &c), 0);
	assert_int_equal(next(&r, 0), 0);
	assert_int_equal(soda_buffer_fill(&all, b, &d), 0);
	assert_ptr_not_equal(c, d);
	memset(d->memory, 1, BYTES);
	assert_int_equal(soda_buffer_publish(&all, b, d), 1);
	assert_int_equal(next(&r, 0), 1);
	soda_buffer_abandon(&all, b, c);
	assert_int_equal(next(&r, 1), 0);
	assert_int_equal(step(b), 2); /* no hole where one was given up */
	assert_int_equal(next(&r, 1), 2);
	assert_int_equal(soda_buffer_next(&all, &r, 0, 0, &found), -EBUSY);
	assert_int_equal(soda_buffer_release(&all, &r, 3), -EINVAL);
	assert_int_equal(soda_buffer_release(&all, &r, 1), 0);
	assert_int_equal(soda_buffer_release(&all, &r, 1), -EINVAL);
	assert_int_equal(next(&r, 0), 1); /* it is there still: nobody needed the copy */
	assert_null(soda_buffer_held(&all, &r, 7));
	soda_buffer_close(&all, &r);
	soda_buffer_close(&all, &r); /* nothing */
	soda_buffer_end(&all, b);
}

/* The oldest step that nobody holds is replaced; where all are held, none. */
static void test_oldest_first(void **state)
{
	struct soda_buffer *b = reserve(2, 0);
	struct soda_buffer_reader r = { 0 }, s = { 0 };
	struct soda_copy *c;

	for (uint64_t i = 1; i <= 5; i++)
		assert_int_equal(step(b), i);
	open_as(&r, &me, 0);
	open_as(&s, &me, 0);
	assert_int_equal(next(&r, 0), 4);
	assert_int_equal(step(b), 6); /* over 5 */
	assert_int_equal(step(b), 7); /* over 6 */
	assert_int_equal(next(&r, 4), 7);
	assert_int_equal(soda_buffer_fill(&all, b, &c), -ENOSPC);
	assert_int_equal(next(&s, 0), 4); /* two hold it */
	assert_int_equal(soda_buffer_release(&all, &r, 4), 0);
	assert_int_equal(soda_buffer_fill(&all, b, &c), -ENOSPC);
	soda_buffer_close(&all, &s);
	assert_int_equal(step(b), 8);
	assert_int_equal(next(&r, 7), 8);
	soda_buffer_close(&all, &r);
	soda_buffer_end(&all, b);
}

/* KEEP: what a reader has not passed stays, and so does everything until there is a reader. */
static void test_keep(void **state)
{
	struct soda_buffer *b = reserve(2, SODA_WIRE_MOVE_KEEP);
	struct soda_buffer_reader r = { 0 }, s = { 0 };
	struct soda_copy *c;

	step(b);
	step(b);
	assert_int_equal(soda_buffer_fill(&all, b, &c), -ENOSPC);
	open_as(&r, &me, 0);
	open_as(&s, &me, 0);
	assert_int_equal(next(&r, 0), 1);
	assert_int_equal(soda_buffer_release(&all, &r, 1), 0);
	assert_int_equal(soda_buffer_fill(&all, b, &c), -ENOSPC); /* s has not */
	assert_int_equal(next(&s, 1), 2);			  /* asks past it */
	assert_int_equal(step(b), 3);
	assert_int_equal(next(&r, 1), 2);
	soda_buffer_close(&all, &r);
	assert_int_equal(soda_buffer_fill(&all, b, &c), -ENOSPC); /* 2 is held, 3 not passed */
	soda_buffer_close(&all, &s);
	/* the last one to leave had released nothing above 1: 2 and 3 wait for the next reader */
	assert_int_equal(soda_buffer_fill(&all, b, &c), -ENOSPC);
	open_as(&r, &me, 0);
	assert_int_equal(next(&r, UINT64_MAX), 0); /* a number that no step has had passes none */
	assert_int_equal(soda_buffer_fill(&all, b, &c), -ENOSPC);
	assert_int_equal(next(&r, 0), 2);
	assert_int_equal(soda_buffer_release(&all, &r, 2), 0);
	soda_buffer_close(&all, &r);
	assert_int_equal(step(b), 4); /* over 2, which was read, though nobody is there now */
	soda_buffer_end(&all, b);
}

/* The producer's end: its name is free, and readers read on, then are told. */
static void test_end(void **state)
{
	struct soda_buffer *b = reserve(2, 0), *other;
	struct soda_buffer_reader r = { 0 };
	struct soda_wire_move_found found = { 0 };
	struct soda_copy *c;

	step(b);
	step(b);
	open_as(&r, &me, 0);
	soda_buffer_end(&all, b);
	other = reserve(1, 0);
	assert_ptr_not_equal(other, b);
	assert_int_equal(soda_buffer_fill(&all, b, &c), -EPIPE);
	assert_int_equal(next(&r, 0), 1);
	assert_int_equal(next(&r, 1), 2);
	assert_int_equal(soda_buffer_next(&all, &r, 2, LONG_MS, &found), 0);
	assert_true(!found.step && found.ended);
	soda_buffer_close(&all, &r);
	open_as(&r, &me, 0);
	assert_ptr_equal(r.buffer, other);
	soda_buffer_close(&all, &r);
	soda_buffer_end(&all, other);
	open_as(&r, &me, -ENOENT);
}

/* Waiting */

static void *open_late(void *arg)
{
	assert_int_equal(soda_buffer_open(&all, "heat", 4, &me, LONG_MS, arg, &why), 0);
	return NULL;
}

static void *next_late(void *arg)
{
	static struct soda_wire_move_found found;

	assert_int_equal(soda_buffer_next(&all, arg, 0, LONG_MS, &found), 0);
	return &found;
}

static void test_waits(void **state)
{
	struct soda_buffer_reader r = { 0 };
	struct soda_wire_move_found *found, none = { 0 };
	struct soda_buffer *b;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, open_late, &r), 0);
	usleep(SOON_MS * 1000);
	b = reserve(1, 0);
	pthread_join(thread, NULL);
	assert_ptr_equal(r.buffer, b);
	assert_int_equal(soda_buffer_next(&all, &r, 0, SOON_MS, &none), 0);
	assert_true(!none.step && !none.ended);
	assert_int_equal(pthread_create(&thread, NULL, next_late, &r), 0);
	usleep(SOON_MS * 1000);
	step(b);
	pthread_join(thread, (void **)&found);
	assert_int_equal(found->step, 1);
	soda_buffer_close(&all, &r);
	soda_buffer_end(&all, b);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(test_refused),	 CASE(test_budget),	   CASE(test_sealed),
		CASE(test_rights),	 CASE(test_unknown_owner), CASE(test_steps),
		CASE(test_oldest_first), CASE(test_keep),	   CASE(test_end),
		CASE(test_waits),
	};

	return cmocka_run_group_tests_name("movement's buffers", tests, NULL, NULL);
}
