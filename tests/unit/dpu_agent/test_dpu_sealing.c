/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sealing in the agent, without a server: no nonce is used twice, counted over all calls of
 * soda_seal_block(), which is wrapped here: while WRITEs are sent again, refused and overtaken, and
 * over the agent's death; and what READs get that pass WRITEs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dpu_agent/base/options.h"
#include "dpu_agent/paging/paging.h"
#include "lib/dice.h"

enum { BLOCK = SODA_SEAL_BLOCK, BLOCKS = 32, BYTES = BLOCKS * BLOCK, NONCES = 1 << 16 };

struct nonce {
	uint8_t key[SODA_KEY_BYTES];
	uint64_t version, block;
};

static struct nonce nonces[NONCES];
static size_t used;

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
	struct nonce *n = &nonces[used++];

	assert_true(used < NONCES);
	/* the region's: what this life measured is nothing that the next one knows */
	assert_int_not_equal(key->cipher, SODA_SEAL_FASTEST);
	*n = (struct nonce){ .version = version, .block = block };
	memcpy(n->key, key->key, sizeof(n->key));
	return __real_soda_seal_block(engine, key, block, version, plain, sealed, tag);
}

/* Which cipher this life of the agent has found to be the faster one. */
static enum soda_seal_cipher fastest = SODA_SEAL_AES_256_GCM;

enum soda_seal_cipher __wrap_soda_seal_fastest(void);
enum soda_seal_cipher __wrap_soda_seal_fastest(void)
{
	return fastest;
}

/* A file system that is full, but for the first page of files. */
static bool full;
int __real_fallocate64(int fd, int mode, off_t at, off_t bytes);
int __wrap_fallocate64(int fd, int mode, off_t at, off_t bytes);
int __wrap_fallocate64(int fd, int mode, off_t at, off_t bytes)
{
	errno = ENOSPC;
	return full && at ? -1 : __real_fallocate64(fd, mode, at, bytes);
}

static int by_nonce(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct nonce));
}

static void expect_all_different(void)
{
	qsort(nonces, used, sizeof(nonces[0]), by_nonce);
	for (size_t i = 1; i < used; i++)
		assert_int_not_equal(by_nonce(&nonces[i - 1], &nonces[i]), 0);
}

static char dir[] = "/dev/shm/soda-sealing-XXXXXX";
static struct soda_dpu_options opt = { .seal = true, .async = true, .seal_memory = 1u << 20 };
static struct soda_sealer sealer;
static struct soda_seal_engine *engine;
static struct soda_paging_region region;
static uint8_t server[BYTES], plain[BYTES];

static void open_region(bool known)
{
	struct soda_why why;

	assert_int_equal(soda_sealer_start(&sealer, &opt), 0);
	assert_int_equal(soda_sealing_begin(&sealer, 7, 3, BYTES, known, &region.sealing, &why), 0);
	assert_int_equal(soda_seal_engine_new(&engine), 0);
}

static void close_region(bool kept)
{
	soda_sealing_end(region.sealing, kept);
	soda_sealer_stop(&sealer);
	soda_seal_engine_free(engine);
}

/* A WRITE is on its way. */
static struct soda_transfer post(uint32_t first, uint32_t n)
{
	struct soda_transfer t = { .region = &region,
				   .offset = (uint64_t)first * BLOCK,
				   .bytes = n * BLOCK,
				   .write = true,
				   .memory = plain + (size_t)first * BLOCK };

	memset(t.memory, (int)used, t.bytes);
	assert_int_equal(soda_sealing_post(engine, &t), 0);
	assert_memory_not_equal(t.sealed->memory, t.memory, BLOCK);
	return t;
}

static void arrive(const struct soda_transfer *t)
{
	memcpy(server + t->offset, t->sealed->memory, t->bytes);
}

static struct soda_transfer ask(uint8_t *to, uint32_t first, uint32_t n)
{
	struct soda_transfer t = { .region = &region,
				   .offset = (uint64_t)first * BLOCK,
				   .bytes = n * BLOCK,
				   .memory = to };

	assert_int_equal(soda_sealing_post(engine, &t), 0);
	return t;
}

static int get(struct soda_transfer *t)
{
	memcpy(t->memory, server + t->offset, t->bytes);
	return soda_sealing_ended(engine, t, 0);
}

static void expect_content(void)
{
	static uint8_t data[BYTES];
	struct soda_transfer t = ask(data, 0, BLOCKS);

	assert_int_equal(get(&t), 0);
	assert_memory_equal(data, plain, BYTES);
}

static void write_somehow(struct dice *d)
{
	uint32_t first = (uint32_t)(dice_roll(d) % BLOCKS);
	uint32_t n = 1 + (uint32_t)(dice_roll(d) % (BLOCKS - first));
	struct soda_transfer t = post(first, n);

	while (dice_roll(d) % 3 == 0) { /* the connection was lost, before or after its arrival */
		if (dice_roll(d) % 2)
			arrive(&t);
		soda_sealing_release(&t);
		t = post(first, n);
	}
	arrive(&t);
	assert_int_equal(soda_sealing_ended(engine, &t, 0), 0);
}

static void test_no_nonce_twice(void **state)
{
	struct dice d = { .state = 1 };

	assert_non_null(mkdtemp(dir));
	opt.seal_state = dir;
	memset(server, 0, BYTES);
	memset(plain, 0, BYTES);
	open_region(false);
	for (int life = 0; life < 200; life++) {
		for (int i = 0; i < 10; i++)
			write_somehow(&d);
		expect_content();
		close_region(true); /* another agent finds key, cipher, counter and table */
		fastest = fastest == SODA_SEAL_AES_256_GCM ? SODA_SEAL_CHACHA20_POLY1305
							   : SODA_SEAL_AES_256_GCM;
		open_region(true);
		expect_content();
	}
	close_region(false);
	assert_int_equal(rmdir(dir), 0);
	opt.seal_state = NULL;
	expect_all_different();
}

static int state_file(int flags)
{
	char path[sizeof(dir) + 32];
	int fd;

	snprintf(path, sizeof(path), "%s/%016llx-%u", dir, 7ull, 3u);
	fd = open(path, flags | O_CLOEXEC, 0600);
	assert_return_code(fd, errno);
	return fd;
}

/* A backup of the directory, brought back: a file of its own. */
static void restore(const void *copy, size_t bytes)
{
	char path[sizeof(dir) + 32];
	int fd;

	snprintf(path, sizeof(path), "%s/%016llx-%u", dir, 7ull, 3u);
	assert_int_equal(unlink(path), 0);
	fd = state_file(O_RDWR | O_CREAT);
	assert_int_equal(pwrite(fd, copy, bytes, 0), bytes);
	close(fd);
}

static void write_range(uint32_t first, uint32_t n)
{
	struct soda_transfer t = post(first, n);

	arrive(&t);
	assert_int_equal(soda_sealing_ended(engine, &t, 0), 0);
}

/*
 * The directory of --seal-state was copied, agent and program have gone on, and the copy is brought
 * back, twice: what was sealed since is refused, and nothing is sealed with a nonce that was used.
 */
static void test_restored_copy(void **state)
{
	static uint8_t copy[2 * 4096], data[BYTES];
	struct soda_transfer read;
	int fd;

	used = 0;
	strcpy(dir + sizeof(dir) - 7, "XXXXXX");
	assert_non_null(mkdtemp(dir));
	opt.seal_state = dir;
	memset(server, 0, BYTES);
	memset(plain, 0, BYTES);
	open_region(false);
	write_range(0, BLOCKS);
	fd = state_file(O_RDONLY);
	assert_int_equal(pread(fd, copy, sizeof(copy), 0), sizeof(copy));
	close(fd);
	for (int time = 0; time < 2; time++) {
		write_range(0, 8);
		close_region(true);
		restore(copy, sizeof(copy));
		open_region(true);
		read = ask(data, 0, 8);
		assert_int_equal(get(&read), -EIO);
		assert_int_equal(read.damaged, 0 + 1);
		read = ask(data, 8, BLOCKS - 8);
		assert_int_equal(get(&read), 0);
		assert_memory_equal(data, plain + 8 * BLOCK, (BLOCKS - 8) * BLOCK);
		write_range(0, 8);
		expect_content();
	}
	close_region(false);
	assert_int_equal(rmdir(dir), 0);
	opt.seal_state = NULL;
	expect_all_different();
}

/* A READ that was overtaken is made again; one that was not is refused, and counted. */
static void test_passed_and_changed(void **state)
{
	static uint8_t data[BYTES];
	struct soda_transfer read, write;

	used = 0;
	memset(server, 0, BYTES);
	memset(plain, 0, BYTES);
	open_region(false);
	write = post(0, BLOCKS);
	arrive(&write);
	assert_int_equal(soda_sealing_ended(engine, &write, 0), 0);
	read = ask(data, 4, 2);
	write = post(4, 1); /* has not arrived: the READ brings what was before */
	assert_int_equal(get(&read), -EAGAIN);
	read = ask(data, 4, 2);
	arrive(&write);
	assert_int_equal(soda_sealing_ended(engine, &write, 0), 0);
	assert_int_equal(get(&read), 0);
	expect_content();
	soda_sealing_discard_begin(region.sealing);
	memset(server + 4 * BLOCK, 0, BLOCK);
	read = ask(data, 4, 1);
	assert_int_equal(get(&read), -EAGAIN);
	soda_sealing_discard_end(region.sealing, 4 * BLOCK, BLOCK, true);
	memset(plain + 4 * BLOCK, 0, BLOCK);
	expect_content();
	server[9 * BLOCK + 1] ^= 1;
	read = ask(data, 8, 2);
	assert_int_equal(get(&read), -EIO);
	assert_int_equal(read.damaged, 9 + 1);
	assert_int_equal(atomic_load(&sealer.damaged), 1);
	close_region(false);
}

/* No key: lost, until it is written or discarded. */
static void test_orphan(void **state)
{
	static uint8_t data[BYTES];
	struct soda_transfer read, write;

	memset(server, 0, BYTES);
	open_region(true);
	read = ask(data, 0, 1);
	assert_int_equal(get(&read), -EIO);
	write = post(0, 1);
	arrive(&write);
	assert_int_equal(soda_sealing_ended(engine, &write, 0), 0);
	read = ask(data, 0, 1);
	assert_int_equal(get(&read), 0);
	soda_sealing_discard_begin(region.sealing);
	soda_sealing_discard_end(region.sealing, BLOCK, BLOCK, true);
	read = ask(data, 0, 2);
	assert_int_equal(get(&read), 0);
	read = ask(data, 1, 2);
	assert_int_equal(get(&read), -EIO);
	close_region(false);
}

/* What may not be promised is refused, and what is parked makes room. */
static void test_budget(void **state)
{
	struct soda_sealing *one = NULL, *two = NULL;
	const uint64_t most = (1u << 20) / 4096 * 170 * 4096ull - 2 * 170 * 4096;
	struct soda_why why = { "" };

	assert_int_equal(soda_sealer_start(&sealer, &opt), 0);
	assert_int_equal(soda_sealing_begin(&sealer, 1, 1, most, false, &one, &why), 0);
	assert_int_equal(soda_sealing_begin(&sealer, 1, 2, BYTES, false, &two, &why), -ENOMEM);
	assert_non_null(strstr(why.text, "--seal-memory"));
	soda_sealing_end(one, true);
	assert_true(soda_sealing_exists(&sealer, 1, 1));
	assert_int_equal(soda_sealing_begin(&sealer, 1, 2, BYTES, false, &two, &why), 0);
	assert_false(soda_sealing_exists(&sealer, 1, 1));
	soda_sealing_end(two, false);
	assert_int_equal(atomic_load(&sealer.metadata), 0);
	soda_sealer_stop(&sealer);
}

/*
 * An object that can never fit is refused, and nobody who is away has his keys forgotten for it.
 * Promises R9 and S7.
 */
static void test_too_much_costs_nobody(void **state)
{
	struct soda_sealing *away = NULL, *live = NULL, *s = NULL;
	const uint64_t half = 128 * 170 * 4096ull;
	struct soda_why why = { "" };

	assert_int_equal(soda_sealer_start(&sealer, &opt), 0);
	assert_int_equal(soda_sealing_begin(&sealer, 1, 1, BYTES, false, &away, &why), 0);
	assert_int_equal(soda_sealing_begin(&sealer, 1, 2, half, false, &live, &why), 0);
	soda_sealing_end(away, true);
	assert_int_equal(soda_sealing_begin(&sealer, 2, 1, 1ull << 38, false, &s, &why), -ENOMEM);
	assert_true(soda_sealing_exists(&sealer, 1, 1));
	/* it would fit if nothing were live */
	assert_int_equal(soda_sealing_begin(&sealer, 2, 1, half, false, &s, &why), -ENOMEM);
	assert_true(soda_sealing_exists(&sealer, 1, 1));
	assert_int_equal(soda_sealing_begin(&sealer, 1, 1, BYTES, true, &s, &why), 0);
	assert_ptr_equal(s, away);
	soda_sealing_end(away, false);
	soda_sealing_end(live, false);
	soda_sealer_stop(&sealer);
}

/* What the system lacks is said. */
static void test_no_descriptor(void **state)
{
	struct soda_sealing *s = NULL;
	struct soda_why why = { "" };
	struct rlimit was, none;

	assert_int_equal(soda_sealer_start(&sealer, &opt), 0);
	assert_return_code(getrlimit(RLIMIT_NOFILE, &was), errno);
	none = (struct rlimit){ .rlim_cur = 0, .rlim_max = was.rlim_max };
	assert_return_code(setrlimit(RLIMIT_NOFILE, &none), errno);
	assert_int_equal(soda_sealing_begin(&sealer, 1, 1, BYTES, false, &s, &why), -EMFILE);
	assert_return_code(setrlimit(RLIMIT_NOFILE, &was), errno);
	assert_non_null(strstr(why.text, "Too many open files"));
	soda_sealer_stop(&sealer);
}

static void *end_later(void *sealing)
{
	usleep(50000);
	soda_sealing_end(sealing, true);
	return NULL;
}

/* A client that comes back before its session has ended gets what that leaves, not an orphan. */
static void test_comes_back_early(void **state)
{
	struct soda_sealing *before = NULL, *after = NULL;
	struct soda_why why = { "" };
	pthread_t thread;

	assert_int_equal(soda_sealer_start(&sealer, &opt), 0);
	assert_int_equal(soda_sealing_begin(&sealer, 1, 1, BYTES, false, &before, &why), 0);
	assert_int_equal(pthread_create(&thread, NULL, end_later, before), 0);
	assert_int_equal(soda_sealing_begin(&sealer, 1, 1, BYTES, true, &after, &why), 0);
	assert_ptr_equal(after, before);
	pthread_join(thread, NULL);
	soda_sealing_end(after, false);
	soda_sealer_stop(&sealer);
}

/* Keys of a client that never comes back go with their time, and no others. */
static void test_stays_away(void **state)
{
	struct soda_sealing *one = NULL, *two = NULL;
	struct soda_why why = { "" };
	uint64_t now;

	opt.seal_keep_ms = 60000;
	assert_int_equal(soda_sealer_start(&sealer, &opt), 0);
	assert_int_equal(soda_sealing_begin(&sealer, 1, 1, BYTES, false, &one, &why), 0);
	assert_int_equal(soda_sealing_begin(&sealer, 1, 2, BYTES, false, &two, &why), 0);
	soda_sealing_end(one, true);
	now = soda_now_ms();
	soda_sealer_expire(&sealer, now + 50000);
	assert_true(soda_sealing_exists(&sealer, 1, 1));
	soda_sealer_expire(&sealer, now + 70000);
	assert_false(soda_sealing_exists(&sealer, 1, 1));
	soda_sealing_end(two, false);
	assert_int_equal(atomic_load(&sealer.metadata), 0);
	soda_sealer_stop(&sealer);
}

/* Nor does the next agent keep what nobody asks it for. */
static void test_stays_away_from_next(void **state)
{
	struct soda_sealing *s[3], *back = NULL;
	char path[sizeof(dir) + 8];
	struct soda_why why = { "" };

	strcpy(dir + sizeof(dir) - 7, "XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/7-note", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	opt.seal_state = dir;
	assert_int_equal(soda_sealer_start(&sealer, &opt), 0);
	for (uint16_t i = 0; i < 3; i++)
		assert_int_equal(soda_sealing_begin(&sealer, 9, i, BYTES, false, &s[i], &why), 0);
	for (int i = 0; i < 3; i++)
		soda_sealing_end(s[i], true);
	soda_sealer_stop(&sealer);
	assert_int_equal(soda_sealer_start(&sealer, &opt), 0);
	assert_int_equal(soda_sealing_begin(&sealer, 9, 1, BYTES, true, &back, &why), 0);
	soda_sealer_expire(&sealer, soda_now_ms() + 50000);
	for (uint16_t i = 0; i < 3; i++)
		assert_true(soda_sealing_exists(&sealer, 9, i));
	soda_sealer_expire(&sealer, soda_now_ms() + 70000);
	for (uint16_t i = 0; i < 3; i++)
		assert_int_equal(soda_sealing_exists(&sealer, 9, i), i == 1);
	soda_sealing_end(back, false);
	soda_sealer_stop(&sealer);
	opt.seal_state = NULL;
	assert_int_equal(rmdir(path), 0); /* what is not its own it has left alone */
	assert_int_equal(rmdir(dir), 0);
}

/* What an agent has left its next one finds where there is no memory for any more. */
static void test_next_without_memory(void **state)
{
	struct soda_transfer write;

	strcpy(dir + sizeof(dir) - 7, "XXXXXX");
	assert_non_null(mkdtemp(dir));
	opt.seal_state = dir;
	memset(server, 0, BYTES);
	memset(plain, 0, BYTES);
	open_region(false);
	write = post(0, BLOCKS);
	memset(plain, 0x5a, BYTES);
	soda_sealing_release(&write);
	assert_int_equal(soda_sealing_post(engine, &write), 0);
	arrive(&write);
	assert_int_equal(soda_sealing_ended(engine, &write, 0), 0);
	close_region(true);
	full = true;
	open_region(true);
	expect_content();
	full = false;
	close_region(false);
	opt.seal_state = NULL;
	assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_nonce_twice),
		cmocka_unit_test(test_restored_copy),
		cmocka_unit_test(test_passed_and_changed),
		cmocka_unit_test(test_orphan),
		cmocka_unit_test(test_budget),
		cmocka_unit_test(test_too_much_costs_nobody),
		cmocka_unit_test(test_no_descriptor),
		cmocka_unit_test(test_comes_back_early),
		cmocka_unit_test(test_stays_away),
		cmocka_unit_test(test_stays_away_from_next),
		cmocka_unit_test(test_next_without_memory),
	};

	return cmocka_run_group_tests_name("dpu_sealing", tests, NULL, NULL);
}
