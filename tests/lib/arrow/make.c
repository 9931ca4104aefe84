/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables by seed. */
#include <string.h>

#include "lib/arrow/arrow.h"
#include "lib/dice.h"

enum { DEPTH = 4, COLUMNS = 5, ROWS = 70 };

struct maker {
	struct arrow_table *table;
	struct dice dice;
};

/* Tables and their memory */

void *arrow_alloc(struct arrow_table *table, size_t bytes)
{
	struct arrow_memory *m = malloc(sizeof(*m) + sizeof(void *));
	void *memory = calloc(1, bytes ? bytes : 1);

	MUST(m && memory);
	memcpy(m + 1, &memory, sizeof(memory));
	m->next = table->memory;
	table->memory = m;
	return memory;
}

void arrow_table_free(struct arrow_table *table)
{
	while (table->memory) {
		struct arrow_memory *next = table->memory->next;
		void *memory;

		memcpy(&memory, table->memory + 1, sizeof(memory));
		free(memory);
		free(table->memory);
		table->memory = next;
	}
	memset(table, 0, sizeof(*table));
}

static void release_schema(struct ArrowSchema *s)
{
	s->release = NULL;
}

static void release_array(struct ArrowArray *a)
{
	a->release = NULL;
}

struct ArrowSchema *arrow_schema(struct arrow_table *table, const char *format, const char *name,
				 int64_t children)
{
	struct ArrowSchema *s = arrow_alloc(table, sizeof(*s));

	*s = (struct ArrowSchema){
		.format = format, .name = name, .n_children = children, .release = release_schema
	};
	if (children)
		s->children = arrow_alloc(table, (size_t)children * sizeof(*s->children));
	return s;
}

struct ArrowArray *arrow_array(struct arrow_table *table, int64_t length, int64_t buffers,
			       int64_t children)
{
	struct ArrowArray *a = arrow_alloc(table, sizeof(*a));

	*a = (struct ArrowArray){ .length = length,
				  .n_buffers = buffers,
				  .n_children = children,
				  .release = release_array };
	if (buffers)
		a->buffers = arrow_alloc(table, (size_t)buffers * sizeof(*a->buffers));
	if (children)
		a->children = arrow_alloc(table, (size_t)children * sizeof(*a->children));
	return a;
}

/* Schemas */

static uint64_t below(struct maker *m, uint64_t n)
{
	return (dice_roll(&m->dice) >> 20) % n;
}

/* true once in n */
static int seldom(struct maker *m, uint64_t n)
{
	return below(m, n) == 0;
}

static char *word(struct maker *m, const char *stem)
{
	char *text = arrow_alloc(m->table, 40);

	snprintf(text, 40, "%s%llu", stem, (unsigned long long)below(m, 1000));
	return text;
}

static const char *make_metadata(struct maker *m)
{
	int32_t pairs = (int32_t)below(m, 4), bytes;
	char *metadata, *at;

	if (!seldom(m, 4))
		return NULL;
	metadata = at = arrow_alloc(m->table, 4 + (size_t)pairs * 2 * (4 + 40));
	memcpy(at, &pairs, 4);
	at += 4;
	for (int i = 0; i < 2 * pairs; i++) {
		const char *text = i % 2 && seldom(m, 3) ? "" : word(m, i % 2 ? "value" : "key");

		if (!(i % 2)) { /* keys differ: readers keep them in a map */
			char *key = arrow_alloc(m->table, 40);

			snprintf(key, 40, "%d%s", i, text);
			text = key;
		}
		bytes = (int32_t)strlen(text);
		memcpy(at, &bytes, 4);
		memcpy(at + 4, text, (size_t)bytes);
		at += 4 + bytes;
	}
	return metadata;
}

static const char *make_format(struct maker *m, int nested)
{
	static const char *const leaves[] = {
		"n",	       "b",
		"c",	       "C",
		"s",	       "S",
		"i",	       "I",
		"l",	       "L",
		"e",	       "f",
		"g",	       "z",
		"Z",	       "u",
		"U",	       "tdD",
		"tdm",	       "tts",
		"ttm",	       "ttu",
		"ttn",	       "tDs",
		"tDm",	       "tDu",
		"tDn",	       "tiM",
		"tiD",	       "tin",
		"tss:",	       "tsm:",
		"tsu:UTC",     "tsn:Europe/Berlin",
		"w:3",	       "w:16",
		"w:0",	       "d:10,3",
		"d:38,-2,128", "d:60,7,256",
	};
	char *format;

	if (nested && seldom(m, 3)) {
		static const char *const parents[] = { "+l", "+L", "+s", "+m", "+w:" };
		const char *parent = parents[below(m, 5)];

		if (parent[1] != 'w')
			return parent;
		format = arrow_alloc(m->table, 16);
		snprintf(format, 16, "+w:%llu", (unsigned long long)below(m, 4) + 1);
		return format;
	}
	return leaves[below(m, sizeof(leaves) / sizeof(*leaves))];
}

static struct ArrowSchema *make_field(struct maker *m, int depth);

/* A key and a value; neither the pair nor the key may be null. */
static struct ArrowSchema *make_entry(struct maker *m, int depth)
{
	struct ArrowSchema *s = arrow_schema(m->table, "+s", "entries", 2);

	s->children[0] = arrow_schema(m->table, seldom(m, 2) ? "u" : "i", "key", 0);
	s->children[1] = make_field(m, depth + 1);
	s->children[1]->name = "value"; /* some readers know these three by these names only */
	return s;
}

static struct ArrowSchema *make_field(struct maker *m, int depth)
{
	const char *format = make_format(m, depth < DEPTH);
	int64_t children = *format != '+' ? 0 : format[1] == 's' ? (int64_t)below(m, 4) : 1;
	struct ArrowSchema *s = arrow_schema(m->table, format, NULL, children);

	s->name = seldom(m, 20) ? NULL : word(m, seldom(m, 9) ? "h\xc3\xb6he" : "c");
	s->flags = seldom(m, 3) ? 0 : ARROW_FLAG_NULLABLE;
	s->metadata = make_metadata(m);
	if (!strcmp(format, "+m") && seldom(m, 2))
		s->flags |= ARROW_FLAG_MAP_KEYS_SORTED;
	for (int64_t i = 0; i < children; i++)
		s->children[i] =
			strcmp(format, "+m") ? make_field(m, depth + 1) : make_entry(m, depth + 1);
	return s;
}

/* Arrays */

static void *make_bytes(struct maker *m, uint64_t bytes)
{
	uint8_t *data = arrow_alloc(m->table, bytes);

	for (uint64_t i = 0; i < bytes; i++)
		data[i] = (uint8_t)(dice_roll(&m->dice) >> 32);
	return data;
}

static int64_t count_nulls(const uint8_t *bits, int64_t from, int64_t n)
{
	int64_t nulls = 0;

	for (int64_t i = from; i < from + n; i++)
		nulls += !(bits[i / 8] >> i % 8 & 1);
	return nulls;
}

static void make_validity(struct maker *m, const struct ArrowSchema *s, struct ArrowArray *a)
{
	uint64_t total = (uint64_t)(a->offset + a->length);
	uint8_t *bits;

	if (!(s->flags & ARROW_FLAG_NULLABLE) || seldom(m, 3)) {
		a->null_count = seldom(m, 3) ? -1 : 0;
		return;
	}
	bits = make_bytes(m, (total + 7) / 8);
	if (seldom(m, 3))
		memset(bits, 0xff, (total + 7) / 8);
	a->buffers[0] = bits;
	a->null_count = seldom(m, 2) ? -1 : count_nulls(bits, a->offset, a->length);
}

/* Offsets for all elements, the first perhaps not 0. Returns the last. */
static int64_t make_offsets(struct maker *m, struct ArrowArray *a, int wide, uint64_t each)
{
	int64_t total = a->offset + a->length, at = seldom(m, 2) ? 0 : (int64_t)below(m, 9);
	char *offsets;

	if (!total && seldom(m, 2))
		return 0; /* none, which an array without elements may have */
	offsets = arrow_alloc(m->table, (size_t)(total + 1) * (wide ? 8 : 4));
	for (int64_t i = 0; i <= total; i++) {
		int32_t narrow = (int32_t)at;

		memcpy(offsets + i * (wide ? 8 : 4), wide ? (void *)&at : (void *)&narrow,
		       wide ? 8 : 4);
		at += i < total ? (int64_t)below(m, each) : 0;
	}
	a->buffers[1] = offsets;
	return at;
}

/* Offsets and text, of characters of one to four bytes. */
static void make_text(struct maker *m, struct ArrowArray *a, int wide)
{
	static const char *const wider[] = { "\xc3\xa9", "\xe6\xbc\xa2", "\xf0\x9f\x98\x80" };
	int64_t total = a->offset + a->length, at = 0;
	char *data, *offsets;

	offsets = arrow_alloc(m->table, (size_t)(total + 1) * (wide ? 8 : 4));
	data = arrow_alloc(m->table, (size_t)total * 4 * 6 + 5);
	if (!seldom(m, 2))
		at = (int64_t)below(m, 5);
	memset(data, '#', (size_t)at);
	for (int64_t i = 0; i <= total; i++) {
		int32_t narrow = (int32_t)at;

		memcpy(offsets + i * (wide ? 8 : 4), wide ? (void *)&at : (void *)&narrow,
		       wide ? 8 : 4);
		for (uint64_t k = i < total ? below(m, 7) : 0; k; k--) {
			const char *c = wider[below(m, 3)];

			if (seldom(m, 3)) {
				memcpy(data + at, c, strlen(c));
				at += (int64_t)strlen(c);
			} else {
				data[at++] = (char)('a' + below(m, 26));
			}
		}
	}
	a->buffers[1] = offsets;
	a->buffers[2] = data;
}

/* Random bits, but for what is no number: two of those are never equal. */
static void make_floats(struct maker *m, struct ArrowArray *a, char type, int64_t total)
{
	size_t width = type == 'e' ? 2 : type == 'f' ? 4 : 8;
	uint8_t *data = make_bytes(m, (uint64_t)total * width);

	for (int64_t i = 0; i < total; i++) /* not all bits of the exponent */
		data[i * (int64_t)width + (int64_t)width - 2] &= type == 'e' ? 0xff : 0x7f;
	for (int64_t i = 0; type == 'e' && i < total; i++)
		data[i * 2 + 1] &= 0xbf;
	for (int64_t i = 0; type == 'g' && i < total; i++)
		data[i * 8 + 7] &= 0xbf;
	a->buffers[1] = data;
}

static void make_fixed(struct maker *m, const char *format, struct ArrowArray *a, int64_t total)
{
	uint64_t width = 8;
	int n;

	if (!strcmp(format, "b"))
		a->buffers[1] = make_bytes(m, ((uint64_t)total + 7) / 8);
	else if (strchr("efg", *format) && !format[1])
		make_floats(m, a, *format, total);
	if (a->buffers[1])
		return;
	if (sscanf(format, "w:%d", &n) == 1)
		width = (uint64_t)n;
	else if (!strncmp(format, "d:", 2))
		width = strstr(format, "256") ? 32 : 16;
	else if (!strcmp(format, "tin"))
		width = 16;
	else if (!strcmp(format, "tdD") || !strcmp(format, "tts") || !strcmp(format, "ttm") ||
		 !strcmp(format, "tiM") || *format == 'i' || *format == 'I')
		width = 4;
	else if (*format == 's' || *format == 'S' || *format == 'c' || *format == 'C')
		width = *format == 's' || *format == 'S' ? 2 : 1;
	a->buffers[1] = make_bytes(m, (uint64_t)total * width);
	if (!total && seldom(m, 2))
		a->buffers[1] = NULL;
}

/* An array of at least `length` elements. */
static struct ArrowArray *make_array(struct maker *m, const struct ArrowSchema *s, int64_t length)
{
	int variable = strchr("zZuU", *s->format) && !s->format[1];
	int list = s->format[0] == '+' && strchr("lLm", s->format[1]);
	int fixed_list = !strncmp(s->format, "+w", 2), children = !strncmp(s->format, "+s", 2);
	int64_t buffers = *s->format == 'n' ? 0 : variable ? 3 : fixed_list || children ? 1 : 2;
	int64_t total, n = 1, child = 0;
	struct ArrowArray *a;

	length += seldom(m, 4) ? (int64_t)below(m, 5) : 0;
	a = arrow_array(m->table, length, buffers, s->n_children);
	a->offset = seldom(m, 2) ? 0 : (int64_t)below(m, 30);
	total = child = a->offset + length;
	if (!buffers) {
		a->null_count = length;
		return a;
	}
	make_validity(m, s, a);
	if (list) {
		child = make_offsets(m, a, s->format[1] == 'L', 4);
	} else if (fixed_list) {
		sscanf(s->format, "+w:%ld", &n);
		child = total * n;
	} else if (variable && (*s->format == 'u' || *s->format == 'U')) {
		make_text(m, a, *s->format == 'U');
	} else if (variable) {
		child = make_offsets(m, a, *s->format == 'Z', 9);
		a->buffers[2] = child || seldom(m, 2) ? make_bytes(m, (uint64_t)child) : NULL;
	} else if (!children) {
		make_fixed(m, s->format, a, total);
	}
	for (int64_t i = 0; i < s->n_children; i++)
		a->children[i] = make_array(m, s->children[i], child);
	return a;
}

void arrow_make(struct arrow_table *table_p, uint64_t seed)
{
	struct maker m = { table_p, { mix(seed, 1) | 1 } };
	int64_t columns = seldom(&m, 20) ? 0 : 1 + (int64_t)below(&m, COLUMNS);

	memset(table_p, 0, sizeof(*table_p));
	table_p->schema = arrow_schema(table_p, "+s", "", columns);
	table_p->schema->metadata = make_metadata(&m);
	for (int64_t i = 0; i < columns; i++)
		table_p->schema->children[i] = make_field(&m, 1);
	table_p->batches_n = seldom(&m, 10) ? 0 : 1 + below(&m, 3);
	for (size_t b = 0; b < table_p->batches_n; b++) {
		int64_t rows = seldom(&m, 8) ? 0 : (int64_t)below(&m, ROWS);
		struct ArrowArray *a = arrow_array(table_p, rows, 1, columns);

		a->offset = seldom(&m, 2) ? 0 : (int64_t)below(&m, 20);
		for (int64_t i = 0; i < columns; i++)
			a->children[i] =
				make_array(&m, table_p->schema->children[i], a->offset + rows);
		table_p->batches[b] = a;
	}
}
