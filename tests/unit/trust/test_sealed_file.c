/* SPDX-License-Identifier: BSD-3-Clause */
/* Sealed files: their keys, and that what was changed of header and table is found. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "trust/sealed_file.h"

enum { BYTES = 300 * SODA_SEALED_PAGE - 5 };

static struct soda_sealed_key key, other;
static struct soda_conf_error err;
static uint8_t page[SODA_SEALED_PAGE];
static char path[64];

static int setup(void **state)
{
	const char *name;

	snprintf(path, sizeof(path), "/tmp/soda-seal-key-%d", getpid());
	unlink(path);
	return soda_seal_ready(&name, &err) || soda_sealed_key_make(path, &err) ||
	       soda_sealed_key_read(path, &key, &err) || unlink(path) ||
	       soda_sealed_key_make(path, &err) || soda_sealed_key_read(path, &other, &err);
}

static int teardown(void **state)
{
	return unlink(path);
}

static uint8_t *entry(struct soda_sealed_file *f, uint64_t block)
{
	return f->table + block * SODA_SEALED_ENTRY;
}

/* A file with blocks of several opens, committed; its header in `page`. */
static void make(struct soda_sealed_file *f, struct soda_seal_key *keys, unsigned opens)
{
	uint8_t salt[SODA_SEALED_OPEN_SALT];

	assert_int_equal(soda_sealed_file_make(&key, BYTES, f), 0);
	for (unsigned i = 0; i < opens; i++) {
		assert_int_equal(soda_sealed_file_new_key(&key, f, salt, &keys[i]), 0);
		for (uint64_t block = i; block < f->layout.blocks; block += 2 * opens)
			soda_sealed_put_entry(entry(f, block), block + 1, salt);
	}
	for (uint64_t i = 0; i < f->layout.table_pages; i++)
		assert_int_equal(soda_sealed_file_changed(f, i), 0);
	assert_int_equal(soda_sealed_file_commit(f, page), 0);
}

/* Open what make() has made, with the table `table`. */
static int open_it(const struct soda_sealed_key *with, const uint8_t *table,
		   struct soda_sealed_file *f)
{
	int ret = soda_sealed_file_begin(with, page, f, &err);

	if (ret)
		return ret;
	memcpy(f->table, table, f->layout.table_pages * SODA_SEALED_PAGE);
	ret = soda_sealed_file_check(with, f, &err);
	if (ret)
		soda_sealed_file_end(f);
	return ret;
}

static void keys_are_found_again(void **state)
{
	struct soda_sealed_file f, again;
	struct soda_seal_key keys[7];

	make(&f, keys, 7);
	assert_int_equal(open_it(&key, f.table, &again), 0);
	assert_int_equal(again.keys_n, 7);
	assert_int_equal(again.header.commits, 1);
	assert_int_equal(again.header.bytes, BYTES);
	for (uint64_t block = 0; block < f.layout.blocks; block++) {
		struct soda_sealed_entry e = soda_sealed_get_entry(entry(&again, block));

		if (block % 14 >= 7) {
			assert_int_equal(e.version, 0);
			continue;
		}
		assert_int_equal(e.version, block + 1);
		assert_memory_equal(soda_sealed_file_key(&again, e.salt)->key, keys[block % 14].key,
				    SODA_KEY_BYTES);
	}
	assert_null(soda_sealed_file_key(&again, (const uint8_t *)"0123456789"));
	soda_sealed_file_end(&f);
	soda_sealed_file_end(&again);
}

static void each_open_and_each_file_has_a_key_of_its_own(void **state)
{
	enum { FILES = 20, OPENS = 10, ALL = FILES * OPENS };
	static struct soda_seal_key keys[ALL];
	struct soda_sealed_file f;

	for (int i = 0; i < FILES; i++) {
		make(&f, keys + i * OPENS, OPENS);
		soda_sealed_file_end(&f);
	}
	for (int i = 0; i < ALL; i++)
		for (int k = 0; k < i; k++)
			assert_memory_not_equal(keys[i].key, keys[k].key, SODA_KEY_BYTES);
}

static void what_was_changed_is_refused(void **state)
{
	struct soda_sealed_file f, again;
	struct soda_seal_key keys[2];
	uint8_t *table;

	make(&f, keys, 2);
	table = f.table;
	assert_int_equal(open_it(&other, table, &again), -EACCES);
	assert_non_null(strstr(err.text, "with the key"));
	for (unsigned at = 0; at < SODA_SEALED_PAGE; at++) {
		page[at] ^= 1;
		assert_int_not_equal(open_it(&key, table, &again), 0);
		page[at] ^= 1;
	}
	for (unsigned at = 0; at < f.layout.table_pages * SODA_SEALED_PAGE; at += 7) {
		table[at] ^= 0x80;
		assert_int_equal(open_it(&key, table, &again), -EBADMSG);
		table[at] ^= 0x80;
	}
	assert_int_equal(open_it(&key, table, &again), 0);
	soda_sealed_file_end(&again);
	soda_sealed_file_end(&f);
}

static void layouts(void **state)
{
	struct soda_sealed_layout l;

	assert_int_equal(soda_sealed_layout(0, &l), -EINVAL);
	assert_int_equal(soda_sealed_layout(UINT64_MAX, &l), -EINVAL);
	assert_int_equal(soda_sealed_layout((uint64_t)UINT32_MAX * SODA_SEALED_PAGE + 1, &l),
			 -EINVAL);
	assert_int_equal(soda_sealed_layout((uint64_t)UINT32_MAX * SODA_SEALED_PAGE, &l), 0);
	assert_int_equal(soda_sealed_layout(1, &l), 0);
	assert_int_equal(l.data_at, 65536);
	assert_int_equal(l.total, 65536 + SODA_SEALED_PAGE);
	for (uint64_t bytes = 1; bytes < 1ull << 43; bytes = bytes * 3 + 1) {
		assert_int_equal(soda_sealed_layout(bytes, &l), 0);
		assert_true(l.table_pages * SODA_SEALED_ENTRIES >= l.blocks);
		assert_true(l.data_at >= l.table_at + l.table_pages * SODA_SEALED_PAGE);
		assert_int_equal(l.total, l.data_at + l.blocks * SODA_SEALED_PAGE);
	}
}

/* What a file's own size says, and which sizes no file has. */
static void layouts_of_files(void **state)
{
	struct soda_sealed_layout l, same;

	for (uint64_t bytes = 1; bytes < 1ull << 43; bytes = bytes * 3 + 1) {
		assert_int_equal(soda_sealed_layout(bytes, &l), 0);
		assert_int_equal(soda_sealed_layout_of(l.total, &same), 0);
		assert_int_equal(same.blocks, l.blocks);
		assert_int_equal(same.data_at, l.data_at);
		assert_int_equal(same.table_pages, l.table_pages);
		assert_int_equal(soda_sealed_layout_of(l.total - 1, &same), -EINVAL);
		assert_int_equal(soda_sealed_layout_of(l.total + 1, &same), -EINVAL);
	}
	for (uint64_t total = 0; total < 65536 + SODA_SEALED_PAGE; total += 512)
		assert_int_equal(soda_sealed_layout_of(total, &same), -EINVAL);
	assert_int_equal(soda_sealed_layout_of(UINT64_MAX, &same), -EINVAL);
	assert_int_equal(soda_sealed_layout((uint64_t)UINT32_MAX * SODA_SEALED_PAGE, &l), 0);
	assert_int_equal(soda_sealed_layout_of(l.total, &same), 0);
	assert_int_equal(soda_sealed_layout_of(l.total + SODA_SEALED_PAGE, &same), -EINVAL);
}

static void key_files(void **state)
{
	struct soda_sealed_key k;

	assert_int_equal(soda_sealed_key_make(path, &err), -EEXIST);
	chmod(path, 0640);
	assert_int_equal(soda_sealed_key_read(path, &k, &err), -EACCES);
	chmod(path, 0600);
	assert_int_equal(soda_sealed_key_read(path, &k, &err), 0);
	assert_memory_equal(&k, &other, sizeof(k));
	assert_int_equal(truncate(path, 40), 0);
	assert_int_equal(soda_sealed_key_read(path, &k, &err), -EINVAL);
	assert_int_equal(soda_sealed_key_read("/nonexistent", &k, &err), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_are_found_again),
		cmocka_unit_test(each_open_and_each_file_has_a_key_of_its_own),
		cmocka_unit_test(what_was_changed_is_refused),
		cmocka_unit_test(layouts),
		cmocka_unit_test(layouts_of_files),
		cmocka_unit_test(key_files),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
