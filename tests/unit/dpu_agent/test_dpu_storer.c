/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists that were gathered for objects: a memory server that is silent holds up those of no other.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/lock.h"
#include "base/wait.h"
#include "dpu_agent/movement/tickets_impl.h"

enum { PAGE = 4096, SERVERS = 3, LISTS = 4, LONG_MS = 20000 };

static struct soda_dpu_server servers[SERVERS];
static struct soda_session sessions[SERVERS];
static struct soda_move_client clients[SERVERS];
static struct soda_movement movement;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool silent[SERVERS];	  /* guarded by lock, and so below */
static unsigned written[SERVERS]; /* lists */
static uint64_t places[SERVERS];  /* of the last one: they come in their order */
static unsigned writing[SERVERS]; /* at this moment */

static int write_list(struct soda_session *s, uint32_t id, uint64_t offset, uint8_t *data,
		      uint64_t bytes)
{
	int i = (int)(s - sessions);

	pthread_mutex_lock(&lock);
	writing[i]++;
	while (silent[i])
		pthread_cond_wait(&changed, &lock);
	if (writing[i] != 1 || offset < places[i])
		abort();
	places[i] = offset;
	writing[i]--;
	written[i]++;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return 0;
}

static const struct soda_agent_regions regions = { .write = write_list };
static struct soda_sessions table = { .regions = &regions };

static void set_silent(int i, bool yes)
{
	pthread_mutex_lock(&lock);
	silent[i] = yes;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

/* False: it did not come to that in time. */
static bool await_written(int i, unsigned n)
{
	struct timespec end = soda_wait_until(LONG_MS);
	int ret = 0;

	pthread_mutex_lock(&lock);
	while (written[i] < n && !ret)
		ret = pthread_cond_timedwait(&changed, &lock, &end);
	pthread_mutex_unlock(&lock);
	return !ret;
}

static int set_up(void **state)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&changed, &attr);
	movement = (struct soda_movement){ .turn = NULL };
	soda_buffers_init(&movement.buffers, SERVERS * LISTS * PAGE);
	assert_int_equal(soda_tickets_start(&movement), 0);
	for (int i = 0; i < SERVERS; i++) {
		sessions[i] = (struct soda_session){ .all = &table, .refs = 1 };
		atomic_store(&sessions[i].server, &servers[i]);
		clients[i] =
			(struct soda_move_client){ .movement = &movement, .session = &sessions[i] };
		clients[i].credits = LISTS;
		pthread_cond_init(&clients[i].ended, NULL);
	}
	return 0;
}

static int tear_down(void **state)
{
	assert_true(soda_tickets_stop(&movement));
	for (int i = 0; i < SERVERS; i++)
		assert_int_equal(sessions[i].refs, 1);
	soda_buffers_destroy(&movement.buffers);
	return 0;
}

/* A list of one page that has come. */
static void give(int i, struct soda_buffer *b)
{
	struct soda_ticket *t = soda_ticket_new(&movement, 0, 0);

	assert_non_null(t);
	t->buffer = b;
	assert_int_equal(soda_buffer_fill(&movement.buffers, b, &t->copy), 0);
	pthread_mutex_lock(&movement.lock);
	soda_storer_take_locked(&clients[i], t);
	pthread_mutex_unlock(&movement.lock);
}

/* Promise R7. */
static void test_one_is_silent(void **state)
{
	struct soda_buffer *b[SERVERS][LISTS];
	struct soda_why why;

	for (int i = 0; i < SERVERS; i++)
		for (int k = 0; k < LISTS; k++) {
			struct soda_wire_move_range ask = { .copies = 1,
							    .at = (uint64_t)k * PAGE,
							    .bytes = PAGE };

			assert_int_equal(
				soda_buffer_range(&movement.buffers, &ask, 0, &b[i][k], &why), 0);
		}
	set_silent(0, true);
	set_silent(1, true);
	for (int k = 0; k < LISTS; k++)
		for (int i = 0; i < SERVERS; i++)
			give(i, b[i][k]);
	assert_true(await_written(2, LISTS));
	set_silent(1, false);
	assert_true(await_written(1, LISTS));
	assert_int_equal(written[0], 0);
	set_silent(0, false);
	assert_true(await_written(0, LISTS));
	assert_true(movement.storers_n <= SERVERS);
	for (int i = 0; i < SERVERS; i++)
		for (int k = 0; k < LISTS; k++)
			soda_buffer_end(&movement.buffers, b[i][k]);
}

/* The first tenant takes all that it gets; the second still has its part. Promise S12. */
static void test_lists_of_tenants(void **state)
{
	enum { PIECES = SODA_MOVE_LIST_MAX };
	static struct soda_tenants tenants;
	struct soda_ticket *list = NULL, *t;
	uint64_t most = SODA_MOVE_LISTS_BYTES, first;

	tenants.there = 2;
	movement.buffers.tenants = &tenants;
	assert_int_equal(movement.lists.all, 0);
	for (uint32_t tenant = 1; tenant <= 2; tenant++) {
		while ((t = soda_ticket_new(&movement, tenant, PIECES))) {
			t->next = list;
			list = t;
		}
		if (tenant == 1)
			first = movement.lists.all;
	}
	assert_true(first <= most * 3 / 4);
	assert_true(first > most / 2);
	assert_true(movement.lists.all - first > most / 5);
	while ((t = list)) {
		list = t->next;
		soda_ticket_free(&movement, t);
	}
	assert_int_equal(movement.lists.all, 0);
	soda_shares_free(&movement.lists);
	movement.buffers.tenants = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_one_is_silent, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_lists_of_tenants, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("dpu_storer", tests, NULL, NULL);
}
