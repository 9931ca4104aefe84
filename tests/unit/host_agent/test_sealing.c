/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sealed objects on a fake server: no nonce is used twice, whatever happens to a chunk; the server
 * has no plaintext; what it changes is lost, and never read.  All encryptions of libsoda go through
 * soda_seal_block(), which is wrapped here.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/lock.h"
#include "host_agent/fault/fault.h"
#include "host_agent/life/advise.h"
#include "host_agent/move/writeback.h"
#include "host_agent/object/sealing.h"
#include "trust/seal.h"
#include "trust/sealed_file.h"
#include "unit/fakes/host_fixture.h"

enum { CHUNKS = 12, PAGES = 16, USES_MAX = 1 << 20 };

struct nonce {
	uint64_t key, version;
	uint32_t block;
};

static char key_path[64];
static struct nonce *uses;
static _Atomic uint32_t uses_n;

int __real_soda_seal_block(struct soda_seal_engine *engine, const struct soda_seal_key *key,
			   uint32_t block, uint64_t version, const void *plain, void *sealed,
			   uint8_t tag[SODA_SEAL_TAG]);
int __wrap_soda_seal_block(struct soda_seal_engine *engine, const struct soda_seal_key *key,
			   uint32_t block, uint64_t version, const void *plain, void *sealed,
			   uint8_t tag[SODA_SEAL_TAG]);

int __wrap_soda_seal_block(struct soda_seal_engine *engine, const struct soda_seal_key *key,
			   uint32_t block, uint64_t version, const void *plain, void *sealed,
			   uint8_t tag[SODA_SEAL_TAG])
{
	uint32_t i = atomic_fetch_add(&uses_n, 1);

	if (i >= USES_MAX)
		fake_fail("more encryptions than are counted");
	uses[i] = (struct nonce){ .version = version, .block = block };
	memcpy(&uses[i].key, key->key, sizeof(uses[i].key));
	return __real_soda_seal_block(engine, key, block, version, plain, sealed, tag);
}

static int order(const void *a, const void *b)
{
	const struct nonce *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	if (x->block != y->block)
		return x->block < y->block ? -1 : 1;
	return (x->version > y->version) - (x->version < y->version);
}

/* How many encryptions there were, each with a nonce of its own. */
static uint32_t check_nonces(void)
{
	uint32_t n = uses_n;

	qsort(uses, n, sizeof(*uses), order);
	for (uint32_t i = 1; i < n; i++)
		if (!order(&uses[i - 1], &uses[i]))
			fake_fail("block %u twice with version %llu", uses[i].block,
				  (unsigned long long)uses[i].version);
	return n;
}

static struct soda_region *begin(const struct host_options *o)
{
	uses_n = 0;
	host_start(o);
	soda_agent.settings.seal = true;
	return host_alloc(CHUNKS << 16);
}

/*
 * The same, with the object of a sealed file, as another program than the one before has it open.
 * The fake server has its blocks alone.
 */
static struct soda_region *begin_file(const struct host_options *o)
{
	static struct soda_sealed_file kept; /* its header and salt are those of one file */
	const struct soda_sealed_key *key;
	struct soda_region *r = begin(o);
	struct soda_why why = { "" };
	struct soda_sealed_file f;

	soda_agent.settings.seal_key_file = key_path;
	assert_int_equal(soda_sealing_file_key(&key, &why), 0);
	assert_int_equal(soda_sealed_file_make(key, CHUNKS << 16, &f), 0);
	if (kept.header.bytes)
		f.header = kept.header;
	kept.header = f.header;
	soda_sealing_end(r);
	r->sealed_file = true;
	assert_int_equal(soda_sealing_begin_file(r, &f, &why), 0);
	r->data_at = 0;
	return r;
}

static void end_file(void)
{
	soda_agent.settings.seal_key_file = NULL; /* it is not of malloc() */
	host_stop();
}

static void let_go(void)
{
	soda_thread_forget(soda_thread_self());
}

static void send(const struct soda_region *r, uint32_t chunk, int why)
{
	uint32_t id = r->first + chunk;

	soda_chunk_flags(&soda_agent.table[id], SODA_CW_QUEUED, 0);
	soda_writeback_queue(&id, 1, why);
}

/* Sent, not acknowledged, stored to meanwhile, sent again after the connection was lost. */
static void each_attempt_has_versions_of_its_own(void **state)
{
	static const struct host_options plain = { .buffer_chunks = 40 };
	struct soda_region *r = begin(&plain);
	uint32_t n;

	for (uint32_t round = 1; round <= 20; round++) {
		host_store(r, 0, 3, round);
		let_go();
		fake_net_hold(false, true);
		send(r, 0, SODA_WB_SYNC);
		while (!fake_net_under_way(true))
			usleep(50);
		host_store(r, 0, round % 16, round + 1000); /* on its way */
		if (round % 2)
			fake_net_break(0);
		fake_net_hold(false, false);
		assert_int_equal(host_sync(r), 0);
		assert_int_equal(host_load(r, 0, round % 16), round + 1000);
		let_go();
		assert_int_equal(host_cold(r, 0, 1), 0);
		host_expect(r, 0, SODA_CHUNK_REMOTE);
		assert_int_equal(host_load(r, 0, round % 16), round + 1000);
	}
	n = check_nonces();
	assert_true(n >= 60); /* two attempts a round, and one more where a connection was lost */
	assert_int_equal(host_count(SODA_CNT_BYTES_SEALED), (uint64_t)n * 4096);
	host_check(r);
	host_stop();
}

static void the_server_has_no_plaintext(void **state)
{
	static const struct host_options plain = { .buffer_chunks = 40 };
	struct soda_region *r = begin(&plain);

	for (uint32_t p = 0; p < PAGES; p++)
		host_store(r, 1, p, 0x1122334455667788u);
	assert_int_equal(host_sync(r), 0);
	for (uint32_t p = 0; p < PAGES; p++)
		assert_int_not_equal(fake_server_word(r->id, (1u << 16) + p * 4096u),
				     0x1122334455667788u);
	/* what was never sent is not there, and reads as zeros whatever the server says */
	r->sparse_score = 16; /* a store opens a block */
	host_store(r, 2, 0, 7);
	assert_int_equal(host_sync(r), 0);
	fake_lock();
	memset(fake_server_at(r->id, (2u << 16) + 5 * 4096, 4096), 0xff, 4096);
	fake_unlock();
	let_go();
	assert_int_equal(host_cold(r, 0, CHUNKS), 0);
	host_expect(r, 2, SODA_CHUNK_REMOTE);
	assert_int_equal(host_load(r, 2, 0), 7);
	assert_int_equal(host_load(r, 2, 5), 0);
	host_stop();
}

/* A single bit: the chunk is LOST, a touch is an error, and a DISCARD makes it zeros. */
static void what_was_changed_is_lost(void **state)
{
	static const struct host_options plain = { .buffer_chunks = 40 };
	struct soda_region *r = begin(&plain);

	for (uint32_t i = 0; i < CHUNKS; i++)
		host_store(r, i, 4, i + 1);
	assert_int_equal(host_sync(r), 0);
	let_go();
	assert_int_equal(host_cold(r, 0, CHUNKS), 0);
	host_expect(r, 3, SODA_CHUNK_REMOTE);
	fake_lock();
	fake_server_at(r->id, (3u << 16) + 4 * 4096, 4096)[99] ^= 2;
	fake_unlock();
	assert_int_equal(soda_fault_touch(soda_thread_self(), r, r->first + 3), -EIO);
	assert_int_equal(host_state(r, 3), SODA_CHUNK_LOST);
	assert_int_equal(host_errors(), 2);
	assert_non_null(strstr(host_last_error(), "is not what was stored"));
	assert_int_equal(soda_fault_touch(soda_thread_self(), r, r->first + 3), -EIO);
	for (uint32_t i = 0; i < CHUNKS; i++)
		if (i != 3)
			assert_int_equal(host_load(r, i, 4), i + 1);
	assert_true(r->unwritten); /* soda_sync will say so */
	host_stop();
}

/* By seed: stores, loads, evictions, losses, refusals, DISCARDs, other objects. */
static void whatever_happens(void **state)
{
	for (uint64_t seed = 1; seed <= 24; seed++) {
		const struct host_options o = {
			.buffer_chunks = 14, .seed = seed, .help = seed % 2, .direct = seed % 3 == 0
		};
		uint64_t content[CHUNKS][PAGES] = { { 0 } }, dice = seed * 0x9e3779b97f4a7c15u;
		struct soda_region *r = seed % 4 < 2 ? begin(&o) : begin_file(&o);

		for (uint64_t step = 1; step <= 600; step++) {
			uint32_t i, p;

			dice = dice * 6364136223846793005u + 1442695040888963407u;
			i = (uint32_t)(dice >> 33) % CHUNKS;
			p = (uint32_t)(dice >> 40) % PAGES;
			switch (dice >> 59) {
			case 0: /* rarely: each takes a pause before the next connection */
				if (step % 150 == 7)
					fake_net_break(0);
				break;
			case 1:
				fake_net_refuse(true, -EIO, 1);
				break;
			case 2:
				host_sync(r);
				break;
			case 3: /* rarely: the fake has room for some hundred of them */
				if (step % 5)
					break;
				host_free(r);
				r = host_alloc(CHUNKS << 16);
				memset(content, 0, sizeof(content));
				break;
			case 4:
			case 5:
			case 6:
			case 7:
			case 8:
			case 9:
			case 10:
			case 11:
				assert_int_equal(host_load(r, i, p), content[i][p]);
				break;
			default:
				host_store(r, i, p, step);
				content[i][p] = step;
			}
			let_go();
		}
		fake_net_refuse(true, 0, 0);
		assert_int_equal(host_sync(r), 0);
		for (uint32_t i = 0; i < CHUNKS; i++)
			for (uint32_t p = 0; p < PAGES; p++) {
				assert_int_equal(host_load(r, i, p), content[i][p]);
				let_go();
			}
		assert_true(check_nonces() > 100);
		host_check(r);
		end_file();
	}
}

/* While it is held nothing is sealed; afterwards what waited is sent. */
static void a_held_file_is_not_sealed(void **state)
{
	static const struct host_options plain = { .buffer_chunks = 40 };
	struct soda_region *r = begin_file(&plain);
	uint32_t n;

	host_store(r, 0, 0, 1);
	assert_int_equal(host_sync(r), 0);
	n = uses_n;
	assert_int_equal(soda_sealing_pending(r), 0);
	soda_sealing_hold(r, true);
	host_store(r, 0, 0, 2);
	let_go();
	send(r, 0, SODA_WB_SYNC);
	usleep(50000);
	assert_int_equal(uses_n, n);
	assert_int_equal(soda_sealing_pending(r), 0);
	host_expect(r, 0, SODA_CHUNK_DIRTY);
	soda_sealing_hold(r, false);
	assert_int_equal(host_sync(r), 0);
	assert_true(uses_n > n);
	assert_int_equal(soda_sealing_pending(r), 0);
	host_check(r);
	end_file();
}

/* What the server has not acknowledged is pending until it has. */
static void what_is_not_acknowledged_is_pending(void **state)
{
	static const struct host_options plain = { .buffer_chunks = 40 };
	struct soda_region *r = begin_file(&plain);

	host_store(r, 0, 0, 1);
	let_go();
	fake_net_hold(false, true);
	send(r, 0, SODA_WB_SYNC);
	while (!fake_net_under_way(true))
		usleep(50);
	assert_int_equal(soda_sealing_pending(r), 1);
	fake_net_break(0);
	fake_net_hold(false, false);
	assert_int_equal(host_sync(r), 0);
	assert_int_equal(soda_sealing_pending(r), 0);
	end_file();
}

/* Of one file: versions may come again in another program, keys may not. */
static void each_open_of_a_file_has_another_key(void **state)
{
	enum { OPENS = 20 };
	static const struct host_options plain = { .buffer_chunks = 40 };
	uint64_t keys[OPENS];

	for (int i = 0; i < OPENS; i++) {
		struct soda_region *r = begin_file(&plain);

		host_store(r, 0, 0, 1);
		assert_int_equal(host_sync(r), 0);
		assert_true(uses_n > 0);
		keys[i] = uses[0].key;
		for (int k = 0; k < i; k++)
			assert_int_not_equal(keys[k], keys[i]);
		end_file();
	}
}

static int setup(void **state)
{
	struct soda_conf_error err;

	snprintf(key_path, sizeof(key_path), "/tmp/soda-sealing-key-%d", getpid());
	if (soda_sealed_key_make(key_path, &err))
		return -1;
	uses = calloc(USES_MAX, sizeof(*uses));
	return uses ? 0 : -1;
}

static int teardown(void **state)
{
	free(uses);
	return unlink(key_path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_attempt_has_versions_of_its_own),
		cmocka_unit_test(the_server_has_no_plaintext),
		cmocka_unit_test(what_was_changed_is_lost),
		cmocka_unit_test(whatever_happens),
		cmocka_unit_test(a_held_file_is_not_sealed),
		cmocka_unit_test(what_is_not_acknowledged_is_pending),
		cmocka_unit_test(each_open_of_a_file_has_another_key),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
