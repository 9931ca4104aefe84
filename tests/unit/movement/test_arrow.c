/* SPDX-License-Identifier: BSD-3-Clause */
/* Arrow tables: FlatBuffers byte for byte, types, bitmaps, streams of any table, malformed ones. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/arrow/arrow.h"
#include "lib/dice.h"
#include "movement/arrow/plan.h"
#include "movement/arrow/structs.h"

enum { SEEDS = 1500 };

static const struct soda_arrow_target stream_8 = { .align = 8 }, stream_64 = { .align = 64 };

/* FlatBuffers */

static void test_flat(void **state)
{
	static const uint8_t sizes[] = { 2, 0, 8, 4, 1 };
	/* clang-format off */
	static const uint8_t expected[] = {
		24, 0, 0, 0,			 /* the root */
		14, 0, 21, 0,			 /* list: its size, the table's */
		4, 0, 0, 0, 8, 0, 16, 0, 20, 0,	 /* fields; the second is left out... */
		0, 0, 0, 0, 0, 0,		 /* ...and a table lies at a multiple of 8 */
		20, 0, 0, 0,			 /* back to the list */
		0x34, 0x12, 0, 0,		 /* first field, padding */
		8, 7, 6, 5, 4, 3, 2, 1,		 /* third */
		8, 0, 0, 0,			 /* fourth: a reference */
		9, 0, 0, 0,			 /* fifth, padding */
		3, 0, 0, 0, 'a', 'b', 'c', 0,	 /* a string */
		0, 0, 0, 0, 1, 0, 0, 0,		 /* a vector, so that its first struct... */
		0x11, 0, 0, 0, 0, 0, 0, 0,	 /* ...lies at a multiple of 8 */
		0x22, 0, 0, 0, 0, 0, 0, 0,
	};
	/* clang-format on */
	uint32_t at[5], vector;
	struct soda_flat f;

	soda_flat_begin(&f);
	assert_int_equal(soda_flat_table(&f, sizes, 5, at), 24);
	soda_flat_put(&f, at[0], 0x1234, 2);
	soda_flat_put(&f, at[2], 0x0102030405060708, 8);
	soda_flat_put(&f, at[4], 9, 1);
	soda_flat_refer(&f, at[3], soda_flat_string(&f, "abc", 3));
	vector = soda_flat_vector(&f, 1, 16);
	soda_flat_put(&f, vector + 4, 0x11, 8);
	soda_flat_put(&f, vector + 12, 0x22, 8);
	assert_false(f.failed);
	assert_int_equal(f.bytes, sizeof(expected));
	assert_memory_equal(f.at, expected, sizeof(expected));
	soda_flat_free(&f);
}

static void test_flat_too_long(void **state)
{
	struct soda_flat f;

	soda_flat_begin(&f);
	assert_int_equal(soda_flat_vector(&f, SODA_FLAT_MAX, 4), 0);
	assert_true(f.failed);
	soda_flat_put(&f, 1 << 30, 1, 8);
	assert_int_equal(soda_flat_string(&f, "x", 1), 0);
	soda_flat_free(&f);
}

/* Types */

static void test_types(void **state)
{
	static const struct {
		const char *format;
		int layout, width, ret;
	} cases[] = {
		{ "n", SODA_ARROW_NOTHING, 0, 0 },
		{ "b", SODA_ARROW_BITS, 0, 0 },
		{ "c", SODA_ARROW_FIXED, 1, 0 },
		{ "L", SODA_ARROW_FIXED, 8, 0 },
		{ "e", SODA_ARROW_FIXED, 2, 0 },
		{ "u", SODA_ARROW_VARIABLE, 4, 0 },
		{ "Z", SODA_ARROW_VARIABLE, 8, 0 },
		{ "tin", SODA_ARROW_FIXED, 16, 0 },
		{ "tsn:", SODA_ARROW_FIXED, 8, 0 },
		{ "tsu:Asia/Tokyo", SODA_ARROW_FIXED, 8, 0 },
		{ "w:42", SODA_ARROW_FIXED, 42, 0 },
		{ "w:0", SODA_ARROW_FIXED, 0, 0 },
		{ "d:10,-2", SODA_ARROW_FIXED, 16, 0 },
		{ "d:5,2,32", SODA_ARROW_FIXED, 4, 0 },
		{ "d:70,2,256", SODA_ARROW_FIXED, 32, 0 },
		{ "+L", SODA_ARROW_LIST, 8, 0 },
		{ "+w:0", SODA_ARROW_FIXED_LIST, 0, 0 },
		{ "+w:7", SODA_ARROW_FIXED_LIST, 7, 0 },
		{ "+s", SODA_ARROW_STRUCT, 0, 0 },
		{ "+m", SODA_ARROW_LIST, 4, 0 },
		{ "+ud:1,2", 0, 0, -ENOTSUP },
		{ "+r", 0, 0, -ENOTSUP },
		{ "vu", 0, 0, -ENOTSUP },
		{ "", 0, 0, -EINVAL },
		{ "x", 0, 0, -EINVAL },
		{ "ii", 0, 0, -EINVAL },
		{ "td", 0, 0, -EINVAL },
		{ "ts", 0, 0, -EINVAL },
		{ "tss", 0, 0, -EINVAL },
		{ "tsx:", 0, 0, -EINVAL },
		{ "w:", 0, 0, -EINVAL },
		{ "w:-1", 0, 0, -EINVAL },
		{ "w:1x", 0, 0, -EINVAL },
		{ "w:2147483648", 0, 0, -EINVAL },
		{ "w:99999999999999999999", 0, 0, -EINVAL },
		{ "w: 1", 0, 0, -EINVAL },
		{ "+w:-3", 0, 0, -EINVAL },
		{ "d:1", 0, 0, -EINVAL },
		{ "d:1,", 0, 0, -EINVAL },
		{ "d:1,2,100", 0, 0, -EINVAL },
		{ "d:1,2,128,", 0, 0, -EINVAL },
		{ "+", 0, 0, -EINVAL },
		{ "+x", 0, 0, -EINVAL },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct soda_arrow_type type = { 0 };
		int ret = soda_arrow_type_get(cases[i].format, &type);

		if (ret != cases[i].ret || (int)type.layout != cases[i].layout ||
		    (int)type.width != cases[i].width)
			fail_msg("'%s': %d, layout %d, width %u", cases[i].format, ret,
				 (int)type.layout, type.width);
	}
}

/* Bits */

static void test_bits(void **state)
{
	uint8_t *bits = malloc(40), *to = malloc(40);
	struct dice d = { 7 };

	for (int i = 0; i < 40; i++)
		bits[i] = (uint8_t)dice_roll(&d);
	for (uint64_t from = 0; from < 70; from++) {
		for (uint64_t n = 0; from + n <= 320; n++) {
			uint64_t zeros = 0;

			memset(to, 0xaa, 40);
			soda_arrow_bits_copy(to, bits, from, n);
			for (uint64_t i = 0; i < n; i++) {
				int bit = bits[(from + i) / 8] >> (from + i) % 8 & 1;

				zeros += !bit;
				assert_int_equal(to[i / 8] >> i % 8 & 1, bit);
			}
			if (n % 8)
				assert_int_equal(to[n / 8] >> n % 8, 0);
			assert_int_equal(soda_arrow_bits_zero(bits, from, n), zeros);
		}
	}
	free(bits);
	free(to);
}

/* Streams */

/* What an agent would make of the plan; the pieces are looked at as it does. */
static uint8_t *carry_out(const struct soda_arrow_plan *plan)
{
	uint8_t *stream = calloc(1, plan->bytes);
	uint64_t end = 0;

	for (size_t i = 0; i < plan->pieces_n; i++) {
		const struct soda_move_piece *p = &plan->pieces[i];

		assert_true(p->bytes && p->offset >= end);
		end = p->offset + p->bytes;
		assert_true(end <= plan->bytes);
		if (p->from)
			memcpy(stream + p->offset, p->from, p->bytes);
		else
			memset(stream + p->offset, (int)p->fill, p->bytes);
	}
	return stream;
}

static void make_plan(const struct arrow_table *t, const struct soda_arrow_target *as,
		      struct soda_arrow_plan *plan)
{
	struct soda_arrow_target measure = *as;
	struct soda_arrow_plan measured;
	struct soda_arrow_why why;

	if (soda_arrow_plan_make(t->schema, t->batches, t->batches_n, as, plan, &why))
		fail_msg("%s", why.text);
	measure.measure = true;
	assert_int_equal(soda_arrow_plan_make(t->schema, t->batches, t->batches_n, &measure,
					      &measured, &why),
			 0);
	assert_int_equal(measured.bytes, plan->bytes);
	assert_int_equal(plan->bytes % 8, 0);
	soda_arrow_plan_free(&measured);
}

/* One column of three numbers. */
static void make_small(struct arrow_table *t, const int32_t *values)
{
	struct ArrowArray *a;

	memset(t, 0, sizeof(*t));
	t->schema = arrow_schema(t, "+s", "", 1);
	t->schema->children[0] = arrow_schema(t, "i", "a", 0);
	a = arrow_array(t, 3, 1, 1);
	a->children[0] = arrow_array(t, 3, 2, 0);
	a->children[0]->buffers[1] = values;
	t->batches[0] = a;
	t->batches_n = 1;
}

static void test_small(void **state)
{
	/* clang-format off */
	static const uint8_t schema[] = {
		0xff, 0xff, 0xff, 0xff, 152, 0, 0, 0,
		/* Message: version 5, a schema, no body */
		16, 0, 0, 0, 12, 0, 24, 0, 4, 0, 6, 0, 8, 0, 16, 0,
		12, 0, 0, 0, 4, 0, 1, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		/* Schema: little-endian, one field */
		10, 0, 12, 0, 4, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		16, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 24, 0, 0, 0,
		/* Field: name, not nullable, type 2, children */
		18, 0, 20, 0, 4, 0, 8, 0, 9, 0, 12, 0, 0, 0, 16, 0, 0, 0, 0, 0,
		20, 0, 0, 0, 16, 0, 0, 0, 0, 2, 0, 0, 28, 0, 0, 0, 36, 0, 0, 0,
		1, 0, 0, 0, 'a', 0,
		/* Int: 32 bits, signed */
		8, 0, 9, 0, 4, 0, 8, 0, 0, 0, 0, 0, 0, 0,
		14, 0, 0, 0, 32, 0, 0, 0, 1, 0, 0, 0,
		/* no children */
		0, 0, 0, 0,
	};
	/* clang-format on */
	const int32_t values[] = { 11, 22, 33 };
	struct soda_arrow_plan plan;
	struct arrow_table t;
	uint8_t *stream;

	make_small(&t, values);
	make_plan(&t, &stream_64, &plan);
	stream = carry_out(&plan);
	assert_memory_equal(stream, schema, sizeof(schema));
	/* the body: at a multiple of 64, the column's own memory, then the end */
	assert_int_equal(plan.pieces_n, 4);
	assert_ptr_equal(plan.pieces[2].from, values);
	assert_int_equal(plan.pieces[2].bytes, sizeof(values));
	assert_int_equal(plan.pieces[2].offset % 64, 0);
	assert_int_equal(plan.bytes, plan.pieces[2].offset + 64 + 8);
	assert_memory_equal(stream + plan.bytes - 8, "\xff\xff\xff\xff\0\0\0\0", 8);
	free(stream);
	soda_arrow_plan_free(&plan);
	arrow_table_free(&t);
}

/* The table of a step that has structures. The arrays are the test's own memory then. */
static void read_structs(struct arrow_table *t, const uint8_t *step, uint64_t bytes)
{
	struct ArrowSchema schema;
	struct soda_arrow_why why;

	memset(t, 0, sizeof(*t));
	if (soda_arrow_structs_schema(step, bytes, &schema, &t->batches_n, &why))
		fail_msg("%s", why.text);
	t->schema = arrow_alloc(t, sizeof(schema));
	*t->schema = schema;
	for (size_t i = 0; i < t->batches_n; i++) {
		struct ArrowArray *a = arrow_alloc(t, sizeof(*a));

		if (soda_arrow_structs_array(step, bytes, i, a, &why))
			fail_msg("%s", why.text);
		t->batches[i] = a;
	}
}

/* Each by its own `release`: the first child after its parent, as the interface allows. */
static void release_structs(struct arrow_table *t)
{
	for (size_t i = 0; i < t->batches_n; i++) {
		struct ArrowArray *a = (struct ArrowArray *)(uintptr_t)t->batches[i], child;
		bool moved = a->n_children > 0;

		if (moved) {
			child = *a->children[0];
			a->children[0]->release = NULL;
		}
		a->release(a);
		assert_null(a->release);
		if (moved)
			child.release(&child);
	}
	t->schema->release(t->schema);
	arrow_table_free(t);
}

static void read_back(struct arrow_table *back, const struct soda_arrow_target *as,
		      const uint8_t *step, uint64_t bytes)
{
	size_t end = bytes;

	if (as->form == SODA_MOVE_ARROW_STRUCTS)
		read_structs(back, step, bytes);
	else if (as->form == SODA_MOVE_ARROW_FILE)
		arrow_read_file(back, step, bytes, as->align);
	else
		arrow_read(back, step, bytes, as->align, &end);
	assert_int_equal(end, bytes);
}

/* What is read out of the step says the same as the table; and copied together it is the same. */
static void same(const struct arrow_table *t, const struct soda_arrow_target *as, uint64_t seed)
{
	struct soda_arrow_plan plan;
	struct arrow_table back;
	char *said, *want = arrow_print(t);
	uint8_t *step;

	make_plan(t, as, &plan);
	step = carry_out(&plan);
	assert_true(as->form != SODA_MOVE_ARROW_FILE || plan.bytes >= as->bytes);
	read_back(&back, as, step, plan.bytes);
	said = arrow_print(&back);
	if (strcmp(said, want))
		fail_msg("seed %llu, form %u, align %u:\n%.1000s\nexpected\n%.1000s",
			 (unsigned long long)seed, as->form, as->align, said, want);
	if (as->form == SODA_MOVE_ARROW_STRUCTS)
		release_structs(&back);
	else
		arrow_table_free(&back);
	assert_int_equal(soda_arrow_plan_copy(&plan), 0);
	assert_true(plan.pieces_n == 1 && plan.pieces[0].bytes == plan.bytes);
	assert_memory_equal(plan.pieces[0].from, step, plan.bytes);
	free(said);
	free(want);
	free(step);
	soda_arrow_plan_free(&plan);
}

static void test_any(void **state)
{
	static const unsigned aligns[] = { 8, 64, 16, 4096 };

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct soda_arrow_target as = { .align = aligns[seed % 4] };
		struct arrow_table t;

		arrow_make(&t, seed);
		for (as.form = 0; as.form <= SODA_MOVE_ARROW_STRUCTS; as.form++) {
			as.bytes = as.form == SODA_MOVE_ARROW_FILE ? seed * 8 : 0;
			same(&t, &as, seed);
		}
		arrow_table_free(&t);
	}
}

/* A step that anybody may have written: whatever is changed in it, a table or an error comes. */
static void test_structs_malformed(void **state)
{
	const struct soda_arrow_target as = { .form = SODA_MOVE_ARROW_STRUCTS, .align = 8 };
	struct dice d = { 99 };
	unsigned refused = 0;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct soda_arrow_why why = { "" };
		struct soda_arrow_plan plan;
		struct ArrowSchema schema;
		struct ArrowArray array;
		struct arrow_table t;
		uint8_t *step, *cut;
		size_t n, bytes;

		arrow_make(&t, seed);
		make_plan(&t, &as, &plan);
		step = carry_out(&plan);
		for (int i = 0; i < 4; i++)
			step[dice_roll(&d) % plan.bytes] ^= (uint8_t)(1u << dice_roll(&d) % 8);
		bytes = plan.bytes - (seed % 3 ? 0 : dice_roll(&d) % plan.bytes);
		cut = malloc(bytes); /* so that a sanitizer sees what is read behind it */
		memcpy(cut, step, bytes);
		if (soda_arrow_structs_schema(cut, bytes, &schema, &n, &why) == 0)
			schema.release(&schema);
		else
			n = 0;
		refused += !n;
		for (size_t i = 0; i < n && i < 4; i++) {
			if (soda_arrow_structs_array(cut, bytes, i, &array, &why) == 0)
				array.release(&array);
			else
				refused++;
		}
		assert_int_equal(soda_arrow_structs_array(cut, bytes, n, &array, &why), -EINVAL);
		assert_true(why.text[0]);
		free(cut);
		free(step);
		soda_arrow_plan_free(&plan);
		arrow_table_free(&t);
	}
	assert_true(refused > SEEDS / 4);
}

static void put_number(uint8_t *at, uint64_t value)
{
	for (unsigned i = 0; i < 8; i++)
		at[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get_number(const uint8_t *at, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes; i++)
		value |= (uint64_t)at[i] << 8 * i;
	return value;
}

/*
 * A hundred fields that all refer to one long text: who reads them would take a hundred times the
 * memory of the step.
 */
static void test_structs_share_text(void **state)
{
	enum { FIELDS = 100, LONG = 20000 };
	const struct soda_arrow_target as = { .form = SODA_MOVE_ARROW_STRUCTS, .align = 64 };
	struct soda_arrow_why why = { "" };
	struct soda_arrow_plan plan;
	struct ArrowSchema schema;
	struct arrow_table t = { 0 };
	uint8_t *step, *structs, *root, *fields;
	char name[LONG + 1] = "";
	size_t n;

	memset(name, 'n', LONG);
	t.schema = arrow_schema(&t, "+s", "", FIELDS);
	for (unsigned i = 0; i < FIELDS; i++)
		t.schema->children[i] = arrow_schema(&t, "n", i ? "b" : name, 0);
	make_plan(&t, &as, &plan);
	step = carry_out(&plan);
	assert_int_equal(soda_arrow_structs_schema(step, plan.bytes, &schema, &n, &why), 0);
	schema.release(&schema);
	/* the root names the schema, which names its children: each becomes the first one */
	structs = step + get_number(step + 8, 8);
	root = structs + get_number(structs, 4) + 4;
	fields = structs + get_number(structs + get_number(root, 8) + 4 + 5 * 8, 8) + 4;
	for (unsigned i = 1; i < FIELDS; i++)
		put_number(fields + 8 * i, get_number(fields, 8));
	assert_int_equal(soda_arrow_structs_schema(step, plan.bytes, &schema, &n, &why), -EINVAL);
	assert_non_null(strstr(why.text, "strings"));
	free(step);
	soda_arrow_plan_free(&plan);
	arrow_table_free(&t);
}

static void test_structs_refused(void **state)
{
	const struct soda_arrow_target as = { .form = SODA_MOVE_ARROW_STRUCTS, .align = 64 };
	const int32_t values[] = { 1, 2, 3 };
	struct soda_arrow_why why = { "" };
	struct soda_arrow_plan plan;
	struct ArrowArray array;
	struct arrow_table t;
	uint8_t *step;

	make_small(&t, values);
	make_plan(&t, &as, &plan);
	step = carry_out(&plan);
	assert_int_equal(soda_arrow_structs_array(step, plan.bytes, 0, &array, &why), 0);
	/* the column lies in the step itself */
	assert_ptr_equal(array.children[0]->buffers[1], step + SODA_ARROW_STRUCTS_HEADER);
	array.release(&array);
	assert_int_equal(soda_arrow_structs_array(step, plan.bytes, 1, &array, &why), -EINVAL);
	assert_non_null(strstr(why.text, "1 batches"));
	assert_int_equal(soda_arrow_structs_array(step, 63, 0, &array, &why), -EINVAL);
	step[24] = 1;
	assert_int_equal(soda_arrow_structs_array(step, plan.bytes, 0, &array, &why), -EINVAL);
	assert_non_null(strstr(why.text, "byte order"));
	step[0] = 0;
	assert_int_equal(soda_arrow_structs_array(step, plan.bytes, 0, &array, &why), -EINVAL);
	assert_non_null(strstr(why.text, "another form"));
	free(step);
	soda_arrow_plan_free(&plan);
	arrow_table_free(&t);
}

/* Columns as they are when nothing has to be made anew: none of their bytes is. */
static void test_nothing_copied(void **state)
{
	static const int32_t offsets[] = { 0, 2, 5, 9 };
	struct soda_arrow_plan plan;
	struct arrow_table t;
	struct ArrowArray *a;
	unsigned blocks = 0;

	make_small(&t, offsets);
	t.schema->children[0] = arrow_schema(&t, "u", "a", 0);
	a = t.batches[0]->children[0] = arrow_array(&t, 3, 3, 0);
	a->buffers[0] = "\5";
	a->buffers[1] = offsets;
	a->buffers[2] = "aabbbcccc";
	a->null_count = 1;
	make_plan(&t, &stream_8, &plan);
	for (struct soda_arrow_block *b = plan.blocks; b; b = b->next)
		blocks++;
	assert_int_equal(blocks, 2); /* the messages */
	for (unsigned i = 0; i < 3; i++)
		assert_ptr_equal(plan.pieces[2 + i].from, a->buffers[i]);
	soda_arrow_plan_free(&plan);
	arrow_table_free(&t);
}

/* What is wrong */

static void expect(const struct arrow_table *t, int err, const char *words)
{
	struct soda_arrow_why why = { "" };
	struct soda_arrow_plan plan;
	int ret =
		soda_arrow_plan_make(t->schema, t->batches, t->batches_n, &stream_64, &plan, &why);

	if (ret != err || !strstr(why.text, words))
		fail_msg("%d, \"%s\"; expected %d, \"%s\"", ret, why.text, err, words);
}

static void test_schemas(void **state)
{
	const int32_t values[] = { 1, 2, 3 };
	struct ArrowSchema *s, *whole, *deep;
	struct arrow_table t;

	make_small(&t, values);
	whole = t.schema;
	s = whole->children[0];
	t.schema = NULL;
	expect(&t, -EINVAL, "NULL");
	t.schema = s;
	expect(&t, -EINVAL, "'+s'");
	t.schema = whole;
	s->format = "q";
	expect(&t, -EINVAL, "column 'a': there is no type 'q'");
	s->format = "+r";
	expect(&t, -ENOTSUP, "'+r' is not implemented");
	s->format = NULL;
	expect(&t, -EINVAL, "`format` is NULL");
	s->format = "+l";
	expect(&t, -EINVAL, "0 children");
	s->format = "i";
	s->n_children = -1;
	expect(&t, -EINVAL, "-1 children");
	s->n_children = 0;
	s->dictionary = s;
	expect(&t, -ENOTSUP, "dictionaries");
	s->dictionary = NULL;
	s->metadata = "\xff\xff\xff\xff";
	expect(&t, -EINVAL, "-1 pairs");
	s->metadata = "\1\0\0\0\1\0\0\0k\0\0\0\x80";
	expect(&t, -EINVAL, "bytes");
	s->metadata = NULL;
	s->release(s);
	expect(&t, -EINVAL, "has been released");
	deep = whole->children[0] = arrow_schema(&t, "+m", "map", 1);
	deep->children[0] = arrow_schema(&t, "+s", "entries", 1);
	deep->children[0]->children[0] = arrow_schema(&t, "i", "key", 0);
	expect(&t, -EINVAL, "not '+s' with 1 children");
	deep->children[0] = deep->children[0]->children[0];
	expect(&t, -EINVAL, "not 'i' with 0 children");
	deep = whole->children[0] = arrow_schema(&t, "+l", "deep", 1);
	deep->children[0] = deep;
	expect(&t, -EINVAL, "nested more than");
	whole->children[0] = NULL;
	expect(&t, -EINVAL, "NULL");
	whole->children = NULL;
	expect(&t, -EINVAL, "`children` is NULL");
	whole->n_children = 1 << 30;
	whole->children = arrow_alloc(&t, 1025 * sizeof(*whole->children));
	for (int i = 0; i < 1025; i++)
		whole->children[i] = arrow_schema(&t, "i", "a", 0);
	expect(&t, -E2BIG, "1024 fields");
	arrow_table_free(&t);
}

#define WRONG(field, value, words)                                                                 \
	do {                                                                                       \
		struct ArrowArray saved_ = *a;                                                     \
		a->field = (value);                                                                \
		expect(&t, -EINVAL, words);                                                        \
		*a = saved_;                                                                       \
	} while (0)

static void test_arrays(void **state)
{
	const int32_t values[] = { 1, 2, 3 };
	struct arrow_table t;
	struct ArrowArray *a;

	make_small(&t, values);
	a = t.batches[0]->children[0];
	WRONG(length, -1, "length -1");
	WRONG(offset, INT64_MIN, "make no sense");
	WRONG(null_count, -2, "null_count -2");
	WRONG(null_count, 4, "null_count 4");
	WRONG(null_count, 2, "no validity bitmap");
	WRONG(n_buffers, 1, "has 2 buffers");
	WRONG(buffers, NULL, "is NULL");
	WRONG(n_children, 1, "its schema has 0 children, its array 1");
	WRONG(dictionary, a, "dictionary");
	WRONG(length, 2, "has 2 elements, and 3 from 0");
	WRONG(release, NULL, "has been released");
	a->buffers[1] = NULL;
	expect(&t, -EINVAL, "a buffer is NULL");
	/* behind the end of all addresses */
	a->buffers[1] = (void *)(UINTPTR_MAX - 3);
	expect(&t, -EINVAL, "overflows");
	a->buffers[1] = values;
	a->offset = INT64_MAX;
	expect(&t, -EFBIG, "2^40");
	a->offset = 0;
	t.batches[0]->children[0] = NULL;
	expect(&t, -EINVAL, "is NULL");
	t.batches[0] = NULL;
	expect(&t, -EINVAL, "is NULL");
	arrow_table_free(&t);
}

static void test_table_nulls(void **state)
{
	const int32_t values[] = { 1, 2, 3 };
	struct ArrowArray *a;
	struct arrow_table t;

	make_small(&t, values);
	a = arrow_array(&t, 3, 1, 1);
	a->children[0] = t.batches[0]->children[0];
	a->buffers[0] = "\5";
	a->null_count = -1;
	t.batches[0] = a;
	expect(&t, -EINVAL, "rows that are null");
	arrow_table_free(&t);
}

static void test_offsets(void **state)
{
	static const int32_t falls[] = { 0, 5, 4 }, below_zero[] = { -1, 2, 3 },
			     hidden[] = { 1, 9, 2, 9 }, far[] = { 0, 1, 2, 300 };
	struct arrow_table t;
	struct ArrowArray *a;

	make_small(&t, falls);
	t.schema->children[0] = arrow_schema(&t, "u", "text", 0);
	a = t.batches[0]->children[0] = arrow_array(&t, 2, 3, 0);
	((struct ArrowArray *)(uintptr_t)t.batches[0])->length = 2;
	a->buffers[2] = "123456789";
	a->buffers[1] = falls + 1;
	a->length = 1;
	((struct ArrowArray *)(uintptr_t)t.batches[0])->length = 1;
	expect(&t, -EINVAL, "an offset of 4 follows one of 5");
	a->buffers[1] = below_zero;
	expect(&t, -EINVAL, "follows one of -1");
	a->length = 3;
	((struct ArrowArray *)(uintptr_t)t.batches[0])->length = 3;
	a->buffers[1] = hidden;
	expect(&t, -EINVAL, "an offset of 2 follows one of 9");
	a->buffers[1] = NULL;
	expect(&t, -EINVAL, "a buffer is NULL");
	/* a list whose offsets are beyond its child */
	t.schema->children[0] = arrow_schema(&t, "+l", "list", 1);
	t.schema->children[0]->children[0] = arrow_schema(&t, "c", "item", 0);
	a = t.batches[0]->children[0] = arrow_array(&t, 3, 2, 1);
	a->buffers[1] = far;
	a->children[0] = arrow_array(&t, 299, 2, 0);
	a->children[0]->buffers[1] = arrow_alloc(&t, 299);
	expect(&t, -EINVAL, "column 'item': an array has 299 elements, and 300 from 0");
	arrow_table_free(&t);
}

static void test_too_big(void **state)
{
	const int32_t values[] = { 1, 2, 3 };
	struct soda_arrow_why why = { "" };
	struct soda_arrow_plan plan;
	struct soda_arrow_target as = { 0 };
	struct ArrowArray *a, *table;
	struct arrow_table t;

	make_small(&t, values);
	table = arrow_array(&t, 1ll << 40, 1, 1);
	a = table->children[0] = arrow_array(&t, 1ll << 40, 2, 0);
	a->buffers[1] = values;
	t.batches[0] = table;
	expect(&t, -EFBIG, "1 TiB");
	t.schema->children[0] = arrow_schema(&t, "+w:2147483647", "wide", 1);
	t.schema->children[0]->children[0] = arrow_schema(&t, "c", "item", 0);
	a = table->children[0] = arrow_array(&t, 1ll << 40, 1, 1);
	a->offset = 1ll << 40;
	a->children[0] = arrow_array(&t, 1, 2, 0);
	expect(&t, -EFBIG, "2^40");
	assert_int_equal(soda_arrow_plan_make(t.schema, t.batches, 1025, &stream_64, &plan, &why),
			 -E2BIG);
	for (as.align = 0; as.align < 10000; as.align++)
		if (as.align < 8 || as.align > 4096 || (as.align & (as.align - 1)))
			assert_int_equal(soda_arrow_plan_make(t.schema, NULL, 0, &as, &plan, &why),
					 -EINVAL);
	assert_int_equal(soda_arrow_plan_make(t.schema, NULL, 1, &stream_64, &plan, &why), -EINVAL);
	as = (struct soda_arrow_target){ .form = SODA_MOVE_ARROW_STRUCTS + 1, .align = 64 };
	assert_int_equal(soda_arrow_plan_make(t.schema, NULL, 0, &as, &plan, &why), -EINVAL);
	arrow_table_free(&t);
}

/* 512 columns with two buffers each are more than a list has pieces; 511 are not. */
static void test_pieces(void **state)
{
	static const int32_t values[] = { 1, 2, 3 };
	struct arrow_table t = { 0 };
	struct ArrowArray *table;

	t.schema = arrow_schema(&t, "+s", "", 512);
	table = arrow_array(&t, 3, 1, 512);
	for (int i = 0; i < 512; i++) {
		struct ArrowArray *a = table->children[i] = arrow_array(&t, 3, 2, 0);

		t.schema->children[i] = arrow_schema(&t, "i", "a", 0);
		a->buffers[0] = "\3";
		a->buffers[1] = values;
		a->null_count = 1;
	}
	t.batches[0] = table;
	t.batches_n = 1;
	expect(&t, -E2BIG, "more than 1024 parts");
	t.schema->n_children = table->n_children = 510;
	same(&t, &stream_64, 0);
	arrow_table_free(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_flat),
		cmocka_unit_test(test_flat_too_long),
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_bits),
		cmocka_unit_test(test_small),
		cmocka_unit_test(test_any),
		cmocka_unit_test(test_schemas),
		cmocka_unit_test(test_nothing_copied),
		cmocka_unit_test(test_arrays),
		cmocka_unit_test(test_table_nulls),
		cmocka_unit_test(test_offsets),
		cmocka_unit_test(test_too_big),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_structs_malformed),
		cmocka_unit_test(test_structs_share_text),
		cmocka_unit_test(test_structs_refused),
	};

	return cmocka_run_group_tests_name("arrow tables", tests, NULL, NULL);
}
