/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Structures of the Arrow C data interface: numbers that make no sense, fields and children that
 * are missing, formats of any text.  Buffers that there are are as long as their array says, where
 * it says something that can be: a program that lies there is read behind its memory. align 8 | a
 * field: what is odd 8, format 8 (or text), children 8 ... | batches 8 | arrays
 */
#include <errno.h>
#include <stdint.h>

#include "fuzz/fuzz.h"
#include "lib/arrow/arrow.h"
#include "movement/arrow/plan.h"
#include "movement/arrow/structs.h"

enum { FIELDS = 40, DEPTH = 40, ROWS = 64, DATA = 4096 };

struct maker {
	struct fuzz_input in;
	struct arrow_table table;
	unsigned fields;
	bool odd; /* a buffer may be too short, or its offsets fall */
};

static bool one_in(struct maker *m, unsigned n)
{
	return m->in.left && fuzz_u8(&m->in) % n == n - 1;
}

/* A number that an array may have, and seldom one that it must not. */
static int64_t number(struct maker *m, unsigned max)
{
	static const int64_t bad[] = { -1, -2, INT64_MIN, INT64_MAX, (1ll << 40) + 1, 1ll << 62 };

	if (one_in(m, 32))
		return bad[fuzz_u8(&m->in) % (sizeof(bad) / sizeof(*bad))];
	return fuzz_u8(&m->in) % max;
}

static void add(char **at, const void *data, size_t bytes)
{
	memcpy(*at, data, bytes);
	*at += bytes;
}

/* Pairs, one length of which may be impossible: what is behind it must not be looked at. */
static const char *make_metadata(struct maker *m)
{
	uint32_t pairs = fuzz_u8(&m->in) % 4, bytes;
	char *metadata = arrow_alloc(&m->table, 4 + 8 * (4 + 8)), *at = metadata;

	if (one_in(m, 8))
		pairs = UINT32_MAX - fuzz_u8(&m->in);
	add(&at, &pairs, 4);
	for (unsigned i = 0; i < 2 * pairs && pairs < 4; i++) {
		char text[8];

		bytes = fuzz_u8(&m->in) % 8;
		fuzz_take(&m->in, text, bytes);
		if (one_in(m, 16)) {
			bytes = UINT32_MAX - fuzz_u8(&m->in);
			add(&at, &bytes, 4);
			break;
		}
		add(&at, &bytes, 4);
		add(&at, text, bytes);
	}
	return metadata;
}

static const char *make_format(struct maker *m)
{
	static const char *const formats[] = {
		"n",
		"b",
		"c",
		"S",
		"i",
		"l",
		"e",
		"g",
		"z",
		"Z",
		"u",
		"U",
		"tdD",
		"ttn",
		"tDu",
		"tin",
		"tsu:",
		"tss:UTC",
		"w:3",
		"d:9,2",
		"+l",
		"+L",
		"+s",
		"+w:2",
		"+w:0",
		"+w:2147483647",
		"w:2147483647",
		"+m",
		"vu",
	};
	uint8_t which = fuzz_u8(&m->in);
	char *text;

	if (which < 8 * (sizeof(formats) / sizeof(*formats)))
		return formats[which % (sizeof(formats) / sizeof(*formats))];
	text = arrow_alloc(&m->table, 33);
	fuzz_take(&m->in, text, which % 32);
	return text;
}

static struct ArrowSchema *make_field(struct maker *m, unsigned depth)
{
	uint8_t odd = m->in.left ? fuzz_u8(&m->in) : 0;
	const char *format = depth ? make_format(m) : "+s";
	bool list = !strncmp(format, "+l", 2) || !strncmp(format, "+L", 2) ||
		    !strncmp(format, "+m", 2) || !strncmp(format, "+w", 2);
	int64_t children = list ? 1 : !strcmp(format, "+s") ? fuzz_u8(&m->in) % 5 : 0;
	struct ArrowSchema *s;

	if (m->fields + (uint64_t)children > FIELDS || depth > DEPTH)
		children = 0;
	m->fields += (unsigned)children;
	s = arrow_schema(&m->table, format, odd & 1 ? NULL : "name", children);
	for (int64_t i = 0; i < children; i++)
		s->children[i] = make_field(m, depth + 1);
	s->flags = odd & 2;
	s->metadata = odd & 4 ? make_metadata(m) : NULL;
	switch (odd >> 3) { /* of 32 */
	case 24:
		s->n_children = number(m, 3); /* more than there are: the room is for none */
		if (s->n_children > children && children)
			s->n_children = -1;
		break;
	case 25:
		s->format = depth ? NULL : "i";
		break;
	case 26:
		s->release = NULL;
		break;
	case 27:
		s->dictionary = s;
		break;
	case 28:
		if (children)
			s->children[0] = s;
		break;
	case 29:
		if (children)
			s->children[0] = NULL;
		break;
	default:;
	}
	return s;
}

/* Offsets that grow, or any. */
static void *make_offsets(struct maker *m, uint64_t n, bool wide)
{
	char *offsets = arrow_alloc(&m->table, n * (wide ? 8 : 4)), *at = offsets;
	bool any = one_in(m, 16);
	int64_t offset = 0;

	m->odd |= any;
	for (uint64_t i = 0; i < n; i++) {
		int32_t narrow;

		offset = any ? (int64_t)fuzz_u64(&m->in) : offset + fuzz_u8(&m->in) % 4;
		narrow = (int32_t)offset;
		add(&at, wide ? (void *)&offset : (void *)&narrow, wide ? 8 : 4);
	}
	return offsets;
}

static struct ArrowArray *make_array(struct maker *m, const struct ArrowSchema *s, uint64_t least)
{
	struct soda_arrow_type type = { 0 };
	bool known = s->format && !soda_arrow_type_get(s->format, &type);
	static const int64_t buffers[] = { 0, 2, 2, 3, 2, 1, 1 };
	int64_t length = number(m, 2 * ROWS), offset = one_in(m, 2) ? number(m, ROWS) : 0;
	bool sane = length >= 0 && length < 2 * ROWS && offset >= 0 && offset < ROWS;
	uint64_t total = sane ? (uint64_t)(length + offset) : 0;
	struct ArrowArray *a;

	if (sane && least < 8 * ROWS && (uint64_t)length < least && !one_in(m, 16)) {
		length = (int64_t)least;
		total = (uint64_t)(length + offset);
	}
	a = arrow_array(&m->table, length, known ? buffers[type.layout] : 0,
			s->children && s->n_children > 0 && s->n_children <= 4 ? s->n_children : 0);
	a->offset = offset;
	a->null_count = one_in(m, 2) ? -1 : one_in(m, 8) ? number(m, ROWS) : 0;
	for (int64_t i = 0; sane && i < a->n_buffers; i++) {
		bool missing = one_in(m, 32);
		uint8_t *data;
		size_t room;

		m->odd |= missing;
		if (missing || (i == 0 && one_in(m, 2)))
			continue;
		if (i == 1 &&
		    (type.layout == SODA_ARROW_VARIABLE || type.layout == SODA_ARROW_LIST)) {
			a->buffers[1] = make_offsets(m, total + 1, type.width == 8);
			continue;
		}
		room = i && total * type.width >= DATA ? 1 : DATA;
		m->odd |= room == 1;
		data = arrow_alloc(&m->table, room);
		fuzz_take(&m->in, data, room == 1 ? 1 : (total + 7) / 8);
		a->buffers[i] = data;
	}
	for (int64_t i = 0; i < a->n_children; i++)
		a->children[i] = s->children[i] && s->children[i] != s && !one_in(m, 64)
					 ? make_array(m, s->children[i],
						      type.layout == SODA_ARROW_FIXED_LIST
							      ? total * type.width
						      : type.layout == SODA_ARROW_LIST ? 4 * total
										       : total)
					 : NULL;
	if (one_in(m, 64))
		a->n_buffers = number(m, 4);
	if (one_in(m, 64))
		a->release = NULL;
	return a;
}

/* What was placed can be had, but for what only who looks at every offset can refuse. */
static void read_structs(const uint8_t *step, uint64_t bytes, size_t n)
{
	struct soda_arrow_why why = { "" };
	struct ArrowSchema schema;
	struct ArrowArray array;
	size_t batches;

	MUST(soda_arrow_structs_schema(step, bytes, &schema, &batches, &why) == 0);
	MUST(batches == n);
	schema.release(&schema);
	for (size_t i = 0; i < n; i++) {
		int ret = soda_arrow_structs_array(step, bytes, i, &array, &why);

		MUST(ret == 0 || (ret == -EINVAL && why.text[0]));
		if (ret == 0)
			array.release(&array);
	}
}

static void check_plan(const struct maker *m, const struct soda_arrow_plan *plan,
		       const struct soda_arrow_target *as)
{
	struct arrow_table read;
	uint64_t at = 0;
	uint8_t *stream;
	size_t end;

	MUST(plan->pieces_n <= SODA_MOVE_PIECES_MAX);
	for (size_t i = 0; i < plan->pieces_n; i++) {
		const struct soda_move_piece *p = &plan->pieces[i];

		MUST(p->bytes && p->offset >= at && p->offset % 8 == 0);
		MUST(p->bytes <= plan->bytes && p->offset <= plan->bytes - p->bytes);
		at = p->offset + p->bytes;
	}
	if (m->odd || plan->bytes > 1 << 22)
		return;
	stream = calloc(1, plan->bytes);
	MUST(stream);
	for (size_t i = 0; i < plan->pieces_n; i++) {
		const struct soda_move_piece *p = &plan->pieces[i];

		if (p->from)
			memcpy(stream + p->offset, p->from, p->bytes);
		else
			memset(stream + p->offset, (int)p->fill, p->bytes);
	}
	if (as->form == SODA_MOVE_ARROW_STRUCTS) {
		read_structs(stream, plan->bytes, m->table.batches_n);
	} else if (as->form == SODA_MOVE_ARROW_FILE) {
		arrow_read_file(&read, stream, plan->bytes, as->align);
		arrow_table_free(&read);
	} else {
		arrow_read(&read, stream, plan->bytes, as->align, &end);
		MUST(end == plan->bytes);
		arrow_table_free(&read);
	}
	free(stream);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct maker m = { .in = { data, bytes } };
	uint8_t how = fuzz_u8(&m.in);
	unsigned align = how % 16 == 15 ? fuzz_u16(&m.in) : 8u << how % 4;
	struct arrow_table *t = &m.table;
	struct soda_arrow_plan plan;
	struct soda_arrow_why why = { "" };
	struct soda_arrow_target as = { (how >> 4) % 4, align, (how & 15) * 100u, how & 128 };

	t->schema = make_field(&m, 0);
	t->batches_n = fuzz_u8(&m.in) % 4;
	for (size_t i = 0; i < t->batches_n; i++)
		t->batches[i] = one_in(&m, 64) ? NULL : make_array(&m, t->schema, 0);
	if (soda_arrow_plan_make(t->schema, t->batches, t->batches_n, &as, &plan, &why) < 0) {
		MUST(why.text[0] && memchr(why.text, 0, sizeof(why.text)));
	} else {
		if (!(how & 128))
			check_plan(&m, &plan, &as);
		soda_arrow_plan_free(&plan);
	}
	arrow_table_free(t);
	return 0;
}
