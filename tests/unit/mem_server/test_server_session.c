/* SPDX-License-Identifier: BSD-3-Clause */
/* The server's clients, below the transports: whom it keeps, whom it waits for, who looks on. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/limits.h"
#include "base/lock.h"
#include "mem_server/life/server.h"
#include "transport/listen/server.h"
#include "unit/fakes/fake_metrics.h"

#define MIB (1ull << 20)

static struct soda_mem_server server;
static struct soda_why why;

static _Atomic bool disk_hangs, disk_is_asked; /* it does not answer; somebody waits for it */

/* A connection is no more than its address here. */
static char connections[64];
static unsigned connections_n;

static int start(void **state)
{
	server = (struct soda_mem_server){ 0 };
	connections_n = 0;
	soda_store_init(&server.store, 64 * MIB);
	server.pool = (struct soda_region_pool){
		.store = &server.store, .files = &server.files, .max_regions = 64, .close_ms = 50
	};
	server.clients.pool = &server.pool;
	server.clients.max_clients = 4;
	server.clients.grace_ms = 3600 * 1000;
	return soda_files_init(&server.files, &server.store, NULL) ||
	       soda_clients_start(&server.clients);
}

static int stop(void **state)
{
	atomic_store(&disk_hangs, false);
	return (int)soda_clients_stop(&server.clients);
}

struct joined {
	struct soda_client *client;
	struct soda_peer *peer;
	struct soda_wire_welcome welcome;
	struct soda_wire_welcome was; /* come_back: with which it comes back, and when */
	uint64_t epoch;
};

static int join_as(struct joined *j, struct soda_peer *peer, const struct soda_wire_welcome *was,
		   uint64_t epoch)
{
	const struct soda_wire_hello hello = { .kind = SODA_CONN_CONTROL,
					       .chunk_bytes = 65536,
					       .client_id = was ? was->client_id : 0,
					       .secret = was ? was->secret : 0,
					       .epoch = epoch };
	const struct soda_peer_info info = { .address = "somewhere" };
	void *client = NULL;
	int r;

	j->peer = peer;
	r = soda_client_hello(&server.clients, j->peer, &hello, &info, &j->welcome, &client, &why);
	j->client = client;
	return r;
}

static int join(struct joined *j, const struct soda_wire_welcome *was, uint64_t epoch)
{
	void *at = &connections[connections_n++ % sizeof(connections)];

	return join_as(j, at, was, epoch);
}

static void go(struct joined *j)
{
	soda_client_gone(j->client, j->peer);
}

static int open_region(struct joined *j)
{
	const struct soda_wire_open open = { .region_id = 1, .bytes = MIB };
	struct soda_wire_opened opened;
	struct soda_share share;

	return soda_region_open(&j->client->regions, &open, NULL, false, &opened, &share, &why);
}

/* Who has said HELLO and gone, and has nothing here, is in nobody's way. */
static void check_empty_clients(void **state)
{
	struct soda_wire_welcome first;
	struct joined j, kept[4];

	for (int i = 0; i < 50; i++) {
		assert_int_equal(join(&j, NULL, 1), 0);
		if (i == 46)
			first = j.welcome;
		go(&j);
	}
	/* as long as there is room they may come back */
	assert_int_equal(join(&j, &first, 2), 0);
	assert_true(j.welcome.known);
	go(&j);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(join(&kept[i], NULL, 1), 0);
		assert_int_equal(open_region(&kept[i]), 0);
		if (i % 2)
			go(&kept[i]);
	}
	/* who has regions is kept */
	assert_int_equal(join(&j, NULL, 1), -EBUSY);
	for (int i = 1; i < 4; i += 2) {
		assert_int_equal(join(&j, &kept[i].welcome, 2), 0);
		assert_true(j.welcome.known);
		go(&j);
	}
	for (int i = 0; i < 4; i += 2)
		go(&kept[i]);
}

static bool is_alone(const struct soda_client *client)
{
	bool is;

	pthread_mutex_lock(&server.clients.lock);
	is = server.clients.list == client && !client->next && !server.clients.freeing;
	pthread_mutex_unlock(&server.clients.lock);
	return is;
}

/*
 * Who has said that they are about to go, and do not, are waited for once and not for ever.  The
 * second wait has nobody to wait for and says so.
 */
static void check_leaving(void **state)
{
	struct joined stays, goes;

	assert_int_equal(join(&stays, NULL, 1), 0);
	assert_false(soda_clients_await_leaving(&server.clients, 60000));
	soda_client_bye_later(stays.client);
	assert_true(soda_clients_await_leaving(&server.clients, 60000));
	assert_false(soda_clients_await_leaving(&server.clients, 60000));
	assert_int_equal(join(&goes, NULL, 1), 0);
	soda_client_bye_later(goes.client);
	go(&goes);
	soda_clients_await_leaving(&server.clients, 60000);
	assert_true(is_alone(stays.client));
	go(&stays);
}

/* In place of the C library's function. */
int fdatasync(int fd)
{
	atomic_store(&disk_is_asked, true);
	while (atomic_load(&disk_hangs))
		usleep(1000);
	return 0;
}

static int open_file(struct joined *j, const char *name)
{
	const struct soda_wire_open open = { .region_id = 2,
					     .name_bytes = (uint16_t)strlen(name),
					     .flags = SODA_WIRE_WRITABLE | SODA_WIRE_CREATE,
					     .bytes = MIB };
	struct soda_wire_opened opened;
	struct soda_share share;
	struct soda_span span;
	int r = soda_region_open(&j->client->regions, &open, name, false, &opened, &share, &why);

	if (r)
		return r;
	assert_int_equal(soda_region_acquire(&j->client->regions, true, 2, 0, 4096, &span), 0);
	span.memory[0] = 7;
	soda_region_release(&j->client->regions, &span, true, true);
	return 0;
}

static void bye(struct joined *j)
{
	soda_client_bye_later(j->client);
	go(j);
}

static void await_free(uint64_t bytes)
{
	for (int ms = 0; soda_store_free_bytes(&server.store) < bytes; ms++) {
		assert_in_range(ms, 0, 20000);
		usleep(1000);
	}
}

/* A file that cannot be closed, because its disk hangs, keeps no memory but its own. */
static void check_disk_hangs(void **state)
{
	char dir[] = "/tmp/soda-test-XXXXXX";
	struct joined first, second, third;
	uint64_t of_files;

	assert_non_null(mkdtemp(dir));
	server.files.dir = open(dir, O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(join(&first, NULL, 1), 0);
	assert_int_equal(join(&second, NULL, 1), 0);
	assert_int_equal(join(&third, NULL, 1), 0);
	assert_int_equal(open_file(&first, "one"), 0);
	assert_int_equal(open_file(&third, "three"), 0);
	of_files = 64 * MIB - soda_store_free_bytes(&server.store);
	assert_int_equal(open_region(&first), 0);
	assert_int_equal(open_region(&second), 0);
	assert_int_equal(open_region(&third), 0);
	atomic_store(&disk_hangs, true);
	bye(&first);
	while (!atomic_load(&disk_is_asked))
		usleep(1000);
	bye(&second);
	bye(&third);
	await_free(64 * MIB - of_files);
	/* a refused OPEN waits for it, and those that come later do not */
	soda_clients_await_leaving(&server.clients, 60000);
	assert_false(soda_clients_await_leaving(&server.clients, 60000));
	atomic_store(&disk_hangs, false);
	await_free(64 * MIB);
	pthread_mutex_lock(&server.clients.lock);
	assert_int_equal(server.clients.lost, 0);
	pthread_mutex_unlock(&server.clients.lock);
	assert_int_equal(unlinkat(server.files.dir, "one", 0), 0);
	assert_int_equal(unlinkat(server.files.dir, "three", 0), 0);
	assert_int_equal(rmdir(dir), 0);
	close(server.files.dir);
	server.files.dir = -1;
}

/* A connection that ends only when the test says so: its call hangs. */
static void hangs(struct soda_peer *peer)
{
}

static void *come_back(void *arg)
{
	struct joined *j = arg;

	return (void *)(intptr_t)join_as(j, j->peer, &j->was, j->epoch);
}

static uint64_t epoch_of(struct soda_client *client)
{
	uint64_t epoch;

	pthread_mutex_lock(&server.clients.lock);
	epoch = client->epoch;
	pthread_mutex_unlock(&server.clients.lock);
	return epoch;
}

/* Only the newest of the connections that wait for an older one's end goes on waiting. */
static void check_overtaken(void **state)
{
	static const struct soda_peer_ops ops = { .close = hangs };
	struct soda_peer peers[3] = { { .ops = &ops }, { .ops = &ops }, { .ops = &ops } };
	struct joined first, later[2];
	pthread_t thread[2];
	void *ret;

	assert_int_equal(join_as(&first, &peers[0], NULL, 1), 0);
	for (unsigned i = 0; i < 2; i++) {
		later[i] = (struct joined){ .peer = &peers[1 + i],
					    .was = first.welcome,
					    .epoch = 2 + i };
		assert_int_equal(pthread_create(&thread[i], NULL, come_back, &later[i]), 0);
		while (epoch_of(first.client) != 2 + i)
			usleep(1000);
	}
	for (int ms = 0; pthread_tryjoin_np(thread[0], &ret); ms++) {
		assert_in_range(ms, 0, 20000);
		usleep(1000);
	}
	assert_int_equal((intptr_t)ret, -ESTALE);
	go(&first);
	assert_int_equal(pthread_join(thread[1], &ret), 0);
	assert_int_equal((intptr_t)ret, 0);
	assert_true(later[1].welcome.known);
	go(&later[1]);
}

/* Epochs count reconnections: what leaps would lock the client itself out. */
static void check_epochs(void **state)
{
	const uint64_t step = SODA_EPOCH_STEP_MAX << SODA_AGENT_EPOCH_SHIFT;
	struct joined j, next;

	assert_int_equal(join(&j, NULL, 1), 0);
	go(&j);
	assert_int_equal(join(&next, &j.welcome, UINT64_MAX), -EINVAL);
	assert_non_null(strstr(why.text, "epoch"));
	assert_int_equal(join(&next, &j.welcome, 2 + step), -EINVAL);
	assert_int_equal(join(&next, &j.welcome, 1), -ESTALE);
	/* of an agent, whose own reconnections are the low bits; and one that fails often */
	for (uint64_t epoch = 2; epoch < UINT64_C(1) << 40; epoch += step) {
		assert_int_equal(join(&next, &j.welcome, epoch), 0);
		assert_true(next.welcome.known);
		go(&next);
	}
}

/*
 * What a walk over the statistics is told, it is told without a lock that clients need.  The
 * thread that ends clients has it now and then, for a moment; this one would have it for ever.
 */
static void look(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 20;
	assert_int_equal(pthread_mutex_timedlock(&server.clients.lock, &until), 0);
	pthread_mutex_unlock(&server.clients.lock);
}

static void check_stats(void **state)
{
	struct joined j[3];

	for (int i = 0; i < 3; i++) {
		assert_int_equal(join(&j[i], NULL, 1), 0);
		assert_int_equal(open_region(&j[i]), 0);
	}
	assert_true(fake_metrics_walk(soda_server_walk, &server, look) > 3 * 10);
	for (int i = 0; i < 3; i++)
		go(&j[i]);
}

/* Its connection ends when another client waits for its place. */
static void *go_late(void *arg)
{
	usleep(20000);
	go(arg);
	return NULL;
}

/* A client that has said goodbye is about to go: its place is waited for. */
static void check_place_of_leaving(void **state)
{
	struct joined j, kept[4];
	uint64_t since;
	pthread_t t;
	int ret;

	for (int i = 0; i < 4; i++) {
		assert_int_equal(join(&kept[i], NULL, 1), 0);
		assert_int_equal(open_region(&kept[i]), 0);
	}
	for (int i = 0; i < 2; i++) {
		since = soda_now_ms();
		if (i)
			soda_client_bye(kept[i].client);
		else
			soda_client_bye_later(kept[i].client);
		assert_int_equal(pthread_create(&t, NULL, go_late, &kept[i]), 0);
		ret = join(&j, NULL, 1);
		assert_int_equal(pthread_join(t, NULL), 0);
		/* on a busy machine the end may come later than it is waited for */
		if (ret && soda_now_ms() - since >= SODA_SERVER_LEAVING_MS)
			ret = join(&j, NULL, 1);
		assert_int_equal(ret, 0);
		assert_int_equal(open_region(&j), 0);
		kept[i] = j;
	}
	/* nobody waits for ever for a client that stays all the same */
	soda_client_bye(kept[2].client);
	assert_int_equal(join(&j, NULL, 1), -EBUSY);
	for (int i = 0; i < 4; i++)
		go(&kept[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(check_empty_clients, start, stop),
		cmocka_unit_test_setup_teardown(check_leaving, start, stop),
		cmocka_unit_test_setup_teardown(check_disk_hangs, start, stop),
		cmocka_unit_test_setup_teardown(check_overtaken, start, stop),
		cmocka_unit_test_setup_teardown(check_place_of_leaving, start, stop),
		cmocka_unit_test_setup_teardown(check_epochs, start, stop),
		cmocka_unit_test_setup_teardown(check_stats, start, stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
