/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A reader of Arrow IPC streams and files that trusts nothing: FlatBuffers by the rules of their
 * format, and messages as Message.fbs and Schema.fbs describe them.
 */
#include <stdbool.h>
#include <string.h>

#include "lib/arrow/arrow.h"

/* FlatBuffers */

struct flat {
	const uint8_t *at;
	uint32_t bytes;
};

/* A number, which lies at a multiple of its size. */
static uint64_t get(const struct flat *f, uint32_t at, uint32_t size)
{
	uint64_t value = 0;

	MUST(at % size == 0 && at <= f->bytes && size <= f->bytes - at);
	for (uint32_t i = 0; i < size; i++)
		value |= (uint64_t)f->at[at + i] << 8 * i;
	return value;
}

static uint32_t follow(const struct flat *f, uint32_t at)
{
	uint32_t by = (uint32_t)get(f, at, 4);

	MUST(by && by < f->bytes - at);
	return at + by;
}

/* Where the field is, or 0: it has been left out. */
static uint32_t field(const struct flat *f, uint32_t table, uint32_t i, uint32_t size)
{
	int64_t list = (int64_t)table - (int32_t)get(f, table, 4);
	uint32_t by;

	MUST(list >= 0 && list < f->bytes);
	MUST(list + get(f, (uint32_t)list, 2) <= f->bytes);
	MUST(table + get(f, (uint32_t)list + 2, 2) <= f->bytes);
	if (4 + 2 * i >= get(f, (uint32_t)list, 2))
		return 0;
	by = (uint32_t)get(f, (uint32_t)list + 4 + 2 * i, 2);
	MUST(!by || by + size <= get(f, (uint32_t)list + 2, 2));
	return by ? table + by : 0;
}

static int64_t number(const struct flat *f, uint32_t table, uint32_t i, uint32_t size,
		      int64_t otherwise)
{
	uint32_t at = field(f, table, i, size);

	return !at ? otherwise : size == 8 ? (int64_t)get(f, at, 8) : (int32_t)get(f, at, size);
}

/* A vector's length; *first_p: its first element. 0: it has been left out. */
static uint32_t vector(const struct flat *f, uint32_t table, uint32_t i, uint32_t element,
		       uint32_t *first_p)
{
	uint32_t at = field(f, table, i, 4), n;

	if (!at)
		return 0;
	at = follow(f, at);
	n = (uint32_t)get(f, at, 4);
	MUST((uint64_t)n * element <= f->bytes - at - 4);
	*first_p = at + 4;
	return n;
}

static char *string(struct arrow_table *t, const struct flat *f, uint32_t table, uint32_t i,
		    uint32_t *bytes_p)
{
	uint32_t first = 0, n = vector(f, table, i, 1, &first);
	char *text = arrow_alloc(t, n + 1);

	MUST(!first || !get(f, first + n, 1));
	if (n)
		memcpy(text, f->at + first, n);
	*bytes_p = n;
	return text;
}

/* Schemas */

static const char *format_of(struct arrow_table *t, const struct flat *f, int type, uint32_t at)
{
	static const char *const plain[22] = {
		[1] = "n",   [4] = "z",	  [5] = "u",  [6] = "b",  [12] = "+l",
		[13] = "+s", [17] = "+m", [19] = "Z", [20] = "U", [21] = "+L"
	};
	static const char units[] = "smun";
	char *format = arrow_alloc(t, 128);
	bool timed = type == 9 || type == 10 || type == 18;
	int unit = timed ? (int)number(f, at, 0, 2, type == 10 ? 0 : 1) & 3 : 0;
	uint32_t bytes;

	MUST(type > 0 && type < 22);
	switch (type) {
	case 2: {
		int bits = (int)number(f, at, 0, 4, 0);
		char c = bits == 8 ? 'c' : bits == 16 ? 's' : bits == 32 ? 'i' : 'l';

		MUST(bits == 8 || bits == 16 || bits == 32 || bits == 64);
		snprintf(format, 128, "%c", number(f, at, 1, 1, 0) ? c : c - 'a' + 'A');
		break;
	}
	case 3:
		snprintf(format, 128, "%c", "efg"[number(f, at, 0, 2, 0)]);
		break;
	case 7:
		snprintf(format, 128, "d:%d,%d,%d", (int)number(f, at, 0, 4, 0),
			 (int)number(f, at, 1, 4, 0), (int)number(f, at, 2, 4, 128));
		break;
	case 8:
		snprintf(format, 128, "td%c", "Dm"[number(f, at, 0, 2, 1)]);
		break;
	case 9:
		MUST(number(f, at, 1, 4, 32) == (unit < 2 ? 32 : 64));
		snprintf(format, 128, "tt%c", units[unit]);
		break;
	case 10:
		snprintf(format, 128, "ts%c:%s", units[unit], string(t, f, at, 1, &bytes));
		break;
	case 11:
		snprintf(format, 128, "ti%c", "MDn"[number(f, at, 0, 2, 0)]);
		break;
	case 15:
	case 16:
		snprintf(format, 128, "%sw:%d", type == 16 ? "+" : "", (int)number(f, at, 0, 4, 0));
		break;
	case 18:
		snprintf(format, 128, "tD%c", units[unit]);
		break;
	default:
		MUST(plain[type]);
		return plain[type];
	}
	return format;
}

static const char *read_metadata(struct arrow_table *t, const struct flat *f, uint32_t table,
				 uint32_t i)
{
	uint32_t first = 0, n = vector(f, table, i, 4, &first), bytes;
	char *metadata = arrow_alloc(t, 4), *text;
	size_t used = 4;

	memcpy(metadata, &n, 4);
	for (uint32_t k = 0; k < 2 * n; k++) {
		uint32_t pair = follow(f, first + 4 * (k / 2));
		char *more;

		text = string(t, f, pair, k % 2, &bytes);
		more = arrow_alloc(t, used + 4 + bytes);
		memcpy(more, metadata, used);
		memcpy(more + used, &bytes, 4);
		memcpy(more + used + 4, text, bytes);
		metadata = more;
		used += 4 + bytes;
	}
	return n ? metadata : NULL;
}

static void read_fields(struct arrow_table *t, const struct flat *f, struct ArrowSchema *parent,
			uint32_t first);

static struct ArrowSchema *read_field(struct arrow_table *t, const struct flat *f, uint32_t table)
{
	uint32_t first = 0, n = vector(f, table, 5, 4, &first), bytes;
	int type = (int)number(f, table, 2, 1, 0);
	const char *name = string(t, f, table, 0, &bytes);
	struct ArrowSchema *s =
		arrow_schema(t, format_of(t, f, type, follow(f, field(f, table, 3, 4))), name, n);

	MUST(field(f, table, 5, 4)); /* some readers need it, be it empty */
	MUST(!field(f, table, 4, 4));
	s->flags = number(f, table, 1, 1, 0) ? ARROW_FLAG_NULLABLE : 0;
	if (!strcmp(s->format, "+m") && number(f, follow(f, field(f, table, 3, 4)), 0, 1, 0))
		s->flags |= ARROW_FLAG_MAP_KEYS_SORTED;
	s->metadata = read_metadata(t, f, table, 6);
	read_fields(t, f, s, first);
	return s;
}

static void read_fields(struct arrow_table *t, const struct flat *f, struct ArrowSchema *parent,
			uint32_t first)
{
	for (uint32_t i = 0; i < parent->n_children; i++)
		parent->children[i] = read_field(t, f, follow(f, first + 4 * i));
}

static void read_schema(struct arrow_table *t, const struct flat *f, uint32_t table)
{
	uint32_t first = 0, n = vector(f, table, 1, 4, &first);

	MUST(number(f, table, 0, 2, 0) == 0); /* little-endian */
	MUST(field(f, table, 1, 4));
	t->schema = arrow_schema(t, "+s", "", n);
	t->schema->metadata = read_metadata(t, f, table, 2);
	read_fields(t, f, t->schema, first);
}

/* Batches */

struct batch {
	struct arrow_table *table;
	const struct flat *f;
	const uint8_t *body;
	uint64_t body_bytes, end; /* of the buffers so far */
	size_t align;
	uint32_t nodes, nodes_n, buffers, buffers_n;
};

static const void *read_buffer(struct batch *b, uint64_t *bytes_p)
{
	uint64_t offset, bytes;

	MUST(b->buffers_n--);
	offset = get(b->f, b->buffers, 8);
	bytes = *bytes_p = get(b->f, b->buffers + 8, 8);
	b->buffers += 16;
	MUST(offset % b->align == 0);
	MUST(offset >= b->end && offset <= b->body_bytes && bytes <= b->body_bytes - offset);
	for (; b->end < offset; b->end++) /* padding */
		MUST(!b->body[b->end]);
	b->end = offset + bytes;
	return bytes ? b->body + offset : NULL;
}

static uint64_t width_of(const char *format)
{
	static const char *const fours[] = { "i", "I", "f", "tdD", "tts", "ttm", "tiM" };
	int n, precision, scale;

	if (sscanf(format, "w:%d", &n) == 1)
		return (uint64_t)n;
	if (sscanf(format, "d:%d,%d,%d", &precision, &scale, &n) == 3)
		return (uint64_t)n / 8;
	for (size_t i = 0; i < sizeof(fours) / sizeof(*fours); i++)
		if (!strcmp(format, fours[i]))
			return 4;
	if (!strcmp(format, "tin"))
		return 16;
	return !format[1] && strchr("cC", *format)    ? 1
	       : !format[1] && strchr("sSe", *format) ? 2
						      : 8;
}

/* The last of n + 1 offsets, which begin with 0 and never fall. */
static uint64_t check_offsets(const void *offsets, uint64_t n, bool wide)
{
	int64_t last = 0;

	for (uint64_t i = 0; i <= n; i++) {
		int64_t offset = 0;
		int32_t narrow;

		memcpy(wide ? (void *)&offset : (void *)&narrow,
		       (const char *)offsets + i * (wide ? 8 : 4), wide ? 8 : 4);
		offset = wide ? offset : narrow;
		MUST(i ? offset >= last : offset == 0);
		last = offset;
	}
	return (uint64_t)last;
}

static struct ArrowArray *read_array(struct batch *b, const struct ArrowSchema *s)
{
	bool variable = strchr("zZuU", *s->format) && !s->format[1];
	bool list = s->format[0] == '+' && strchr("lLm", s->format[1]);
	bool fixed_list = !strncmp(s->format, "+w", 2), children = !strncmp(s->format, "+s", 2);
	bool wide = *s->format == 'Z' || *s->format == 'U' || (list && s->format[1] == 'L');
	int64_t buffers = *s->format == 'n' ? 0 : variable ? 3 : fixed_list || children ? 1 : 2;
	struct ArrowArray *a;
	uint64_t n, nulls, bytes, child;
	int each = 1;

	MUST(b->nodes_n--);
	n = child = get(b->f, b->nodes, 8);
	nulls = get(b->f, b->nodes + 8, 8);
	b->nodes += 16;
	a = arrow_array(b->table, (int64_t)n, buffers, s->n_children);
	a->null_count = (int64_t)nulls;
	MUST(nulls <= n);
	if (buffers) {
		a->buffers[0] = read_buffer(b, &bytes);
		MUST(bytes == (nulls ? (n + 7) / 8 : 0));
	}
	if (variable || list) {
		a->buffers[1] = read_buffer(b, &bytes);
		MUST(bytes == (n + 1) * (wide ? 8 : 4));
		child = check_offsets(a->buffers[1], n, wide);
	} else if (fixed_list) {
		sscanf(s->format, "+w:%d", &each);
		child = n * (uint64_t)each;
	} else if (buffers == 2) {
		a->buffers[1] = read_buffer(b, &bytes);
		MUST(bytes == (*s->format == 'b' ? (n + 7) / 8 : n * width_of(s->format)));
	}
	if (variable) {
		a->buffers[2] = read_buffer(b, &bytes);
		MUST(bytes == child);
	}
	for (int64_t i = 0; i < s->n_children; i++) {
		a->children[i] = read_array(b, s->children[i]);
		MUST((uint64_t)a->children[i]->length == child);
	}
	return a;
}

static void read_batch(struct arrow_table *t, const struct flat *f, uint32_t table,
		       const uint8_t *body, uint64_t body_bytes, size_t align)
{
	struct batch b = {
		.table = t, .f = f, .body = body, .body_bytes = body_bytes, .align = align
	};
	int64_t rows = number(f, table, 0, 8, 0);
	struct ArrowArray *a;

	MUST(t->schema && t->batches_n < ARROW_BATCHES_MAX);
	b.nodes_n = vector(f, table, 1, 16, &b.nodes);
	b.buffers_n = vector(f, table, 2, 16, &b.buffers);
	MUST(field(f, table, 1, 4) && field(f, table, 2, 4));
	MUST(b.nodes % 8 == 0 && b.buffers % 8 == 0);
	a = arrow_array(t, rows, 1, t->schema->n_children);
	for (int64_t i = 0; i < t->schema->n_children; i++) {
		a->children[i] = read_array(&b, t->schema->children[i]);
		MUST(a->children[i]->length == rows);
	}
	MUST(!b.nodes_n && !b.buffers_n);
	t->batches[t->batches_n++] = a;
}

void arrow_read(struct arrow_table *t, const void *stream, size_t bytes, size_t align,
		size_t *end_p)
{
	const uint8_t *at = stream, *end = at + bytes;
	uint64_t body;
	uint32_t root, size, header;

	memset(t, 0, sizeof(*t));
	for (;; at += body) {
		struct flat f;

		MUST(end - at >= 8 && (at - (const uint8_t *)stream) % 8 == 0);
		MUST(!memcmp(at, "\xff\xff\xff\xff", 4));
		f = (struct flat){ at + 4, 4 };
		size = (uint32_t)get(&f, 0, 4);
		at += 8;
		if (!size)
			break;
		MUST(size % 8 == 0 && size <= (size_t)(end - at));
		f = (struct flat){ at, size };
		root = follow(&f, 0);
		MUST(number(&f, root, 0, 2, 0) == 4); /* version 5 of the metadata */
		body = (uint64_t)number(&f, root, 3, 8, 0);
		header = follow(&f, field(&f, root, 2, 4));
		at += size;
		MUST(body <= (uint64_t)(end - at) && body % 8 == 0);
		if (!t->schema) {
			MUST(number(&f, root, 1, 1, 0) == 1 && !body);
			read_schema(t, &f, header);
			continue;
		}
		MUST(number(&f, root, 1, 1, 0) == 3);
		MUST((size_t)(at - (const uint8_t *)stream) % align == 0);
		read_batch(t, &f, header, at, body, align);
	}
	MUST(t->schema);
	*end_p = (size_t)(at - (const uint8_t *)stream);
}

/* Files */

/* A batch that the footer names: where its message is, how long that is, and its body. */
static void read_place(struct arrow_table *t, const struct flat *footer, uint32_t place,
		       const uint8_t *file, size_t bytes, size_t align)
{
	uint64_t offset = get(footer, place, 8), metadata = get(footer, place + 8, 4),
		 body = get(footer, place + 16, 8);
	struct flat f;
	uint32_t root;

	MUST(offset % 8 == 0 && metadata % 8 == 0 && metadata > 8);
	MUST(offset <= bytes && metadata <= bytes - offset && body <= bytes - offset - metadata);
	MUST(!memcmp(file + offset, "\xff\xff\xff\xff", 4));
	f = (struct flat){ file + offset + 4, 4 };
	MUST(get(&f, 0, 4) == metadata - 8);
	f = (struct flat){ file + offset + 8, (uint32_t)metadata - 8 };
	root = follow(&f, 0);
	MUST(number(&f, root, 0, 2, 0) == 4 && number(&f, root, 1, 1, 0) == 3);
	MUST((uint64_t)number(&f, root, 3, 8, 0) == body);
	MUST((offset + metadata) % align == 0);
	read_batch(t, &f, follow(&f, field(&f, root, 2, 4)), file + offset + metadata, body, align);
}

void arrow_read_file(struct arrow_table *t, const void *file, size_t bytes, size_t align)
{
	const uint8_t *end = (const uint8_t *)file + bytes;
	struct flat f = { end - 10, 4 };
	uint32_t root, first = 0, n;
	size_t size;

	memset(t, 0, sizeof(*t));
	MUST(bytes >= 24 && !memcmp(file, "ARROW1\0", 8) && !memcmp(end - 6, "ARROW1", 6));
	size = get(&f, 0, 4);
	MUST(size <= bytes - 18 && (bytes - 10 - size) % 8 == 0);
	f = (struct flat){ end - 10 - size, (uint32_t)size };
	root = follow(&f, 0);
	MUST(number(&f, root, 0, 2, 0) == 4);
	read_schema(t, &f, follow(&f, field(&f, root, 1, 4)));
	MUST(field(&f, root, 2, 4) && !vector(&f, root, 2, 24, &first));
	n = vector(&f, root, 3, 24, &first);
	for (uint32_t i = 0; i < n; i++)
		read_place(t, &f, first + 24 * i, file, bytes - 10 - size, align);
}
