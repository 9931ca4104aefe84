/* SPDX-License-Identifier: BSD-3-Clause */
#include "movement/arrow/schema.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int soda_arrow_wrong(struct soda_arrow_why *why, int err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why->text, sizeof(why->text), fmt, args);
	va_end(args);
	return err;
}

int soda_arrow_buffers_of(enum soda_arrow_layout layout)
{
	static const int buffers[] = {
		[SODA_ARROW_NOTHING] = 0,  [SODA_ARROW_FIXED] = 2, [SODA_ARROW_BITS] = 2,
		[SODA_ARROW_VARIABLE] = 3, [SODA_ARROW_LIST] = 2,  [SODA_ARROW_FIXED_LIST] = 1,
		[SODA_ARROW_STRUCT] = 1,
	};

	return buffers[layout];
}

/* Checking */

struct check {
	uint32_t fields;
	struct soda_arrow_why *why;
};

static uint32_t get_length(const char *at)
{
	uint32_t length; /* in the machine's byte order, and at any address */

	memcpy(&length, at, sizeof(length));
	return length;
}

/* A field's own metadata: a number of pairs, then key and value of each, with its length before. */
static int check_metadata(const char *metadata, const char *name, struct soda_arrow_why *why)
{
	uint32_t pairs = metadata ? get_length(metadata) : 0;

	if (pairs > SODA_ARROW_PAIRS_MAX)
		return soda_arrow_wrong(why, -EINVAL,
					"column '%.64s': its metadata say that they are %d pairs",
					name, (int)pairs);
	for (uint32_t i = 0; i < 2 * pairs; i++) {
		uint32_t bytes;

		metadata += i ? 0 : sizeof(pairs);
		bytes = get_length(metadata);
		if (bytes > SODA_FLAT_MAX)
			return soda_arrow_wrong(why, -EINVAL,
						"column '%.64s': a string of its metadata says it"
						" has %d bytes",
						name, (int)bytes);
		metadata += sizeof(bytes) + bytes;
	}
	return 0;
}

uint64_t soda_arrow_metadata_bytes(const char *metadata, uint64_t max)
{
	uint64_t at = sizeof(uint32_t);
	uint32_t pairs;

	if (!metadata || max < at)
		return 0;
	pairs = get_length(metadata);
	if (pairs > SODA_ARROW_PAIRS_MAX)
		return 0;
	for (uint32_t i = 0; i < 2 * pairs; i++) {
		if (max - at < sizeof(uint32_t))
			return 0;
		at += sizeof(uint32_t) + (uint64_t)get_length(metadata + at);
		if (at > max)
			return 0;
	}
	return at;
}

static int check_format(const char *format, const char *name, struct soda_arrow_type *type_p,
			struct soda_arrow_why *why)
{
	int ret = soda_arrow_type_get(format, type_p);

	if (ret == -ENOTSUP)
		return soda_arrow_wrong(why, ret, "column '%.64s': type '%.64s' is not implemented",
					name, format);
	return ret ? soda_arrow_wrong(why, ret, "column '%.64s': there is no type '%.64s'", name,
				      format)
		   : 0;
}

static int check_children(const struct ArrowSchema *s, const struct soda_arrow_type *type,
			  const char *name, struct soda_arrow_why *why)
{
	bool list = type->layout == SODA_ARROW_LIST || type->layout == SODA_ARROW_FIXED_LIST;
	bool other = type->layout != SODA_ARROW_STRUCT;

	if (s->n_children < 0 || (other && s->n_children != (list ? 1 : 0)))
		return soda_arrow_wrong(why, -EINVAL,
					"column '%.64s': type '%.64s' cannot have %lld children",
					name, s->format, (long long)s->n_children);
	if (s->n_children && !s->children)
		return soda_arrow_wrong(why, -EINVAL,
					"column '%.64s': `children` is NULL, with n_children %lld",
					name, (long long)s->n_children);
	return 0;
}

/* A map is a list of structs of a key and a value. The field below it has been checked. */
static int check_map(const struct ArrowSchema *s, const char *name, struct soda_arrow_why *why)
{
	const struct ArrowSchema *entry = s->children[0];

	if (strcmp(entry->format, "+s") || entry->n_children != 2)
		return soda_arrow_wrong(why, -EINVAL,
					"column '%.64s': a map has a struct of a key and a value,"
					" not '%.64s' with %lld children",
					name, entry->format, (long long)entry->n_children);
	return 0;
}

static int check_field(struct check *c, const struct ArrowSchema *s, unsigned depth)
{
	const char *name = s && s->release && s->name ? s->name : "";
	struct soda_arrow_type type;
	int ret;

	if (!s || !s->release || !s->format)
		return soda_arrow_wrong(c->why, -EINVAL,
					!s	      ? "a schema is NULL"
					: !s->release ? "a schema has been released"
						      : "a schema's `format` is NULL");
	if (depth > SODA_ARROW_DEPTH_MAX)
		return soda_arrow_wrong(c->why, -EINVAL,
					"column '%.64s': types are nested more than %d deep", name,
					SODA_ARROW_DEPTH_MAX);
	if (s->dictionary)
		return soda_arrow_wrong(c->why, -ENOTSUP,
					"column '%.64s': dictionaries are not implemented", name);
	ret = check_format(s->format, name, &type, c->why);
	if (ret == 0)
		ret = check_children(s, &type, name, c->why);
	if (ret == 0)
		ret = check_metadata(s->metadata, name, c->why);
	for (int64_t i = 0; ret == 0 && i < s->n_children; i++) {
		if (++c->fields > SODA_ARROW_FIELDS_MAX)
			return soda_arrow_wrong(c->why, -E2BIG,
						"a schema can have %d fields, on all levels",
						SODA_ARROW_FIELDS_MAX);
		ret = check_field(c, s->children[i], depth + 1);
	}
	return ret == 0 && !strcmp(s->format, "+m") ? check_map(s, name, c->why) : ret;
}

int soda_arrow_schema_check(const struct ArrowSchema *schema, uint32_t *fields_p,
			    struct soda_arrow_why *why)
{
	struct check c = { .why = why };
	int ret = check_field(&c, schema, 0);

	if (ret < 0)
		return ret;
	if (strcmp(schema->format, "+s"))
		return soda_arrow_wrong(why, -EINVAL,
					"a table is a struct, '+s', of its columns, not '%.64s'",
					schema->format);
	*fields_p = c.fields;
	return 0;
}

struct soda_arrow_type soda_arrow_type_of(const struct ArrowSchema *field)
{
	struct soda_arrow_type type = { 0 };
	int ret = soda_arrow_type_get(field->format, &type);

	assert(ret == 0);
	(void)ret;
	if (!strcmp(field->format, "+m"))
		type.value[0] = !!(field->flags & ARROW_FLAG_MAP_KEYS_SORTED);
	return type;
}

/* Writing */

enum { REF = 4, VERSION_5 = 4, HEADER_SCHEMA = 1, HEADER_BATCH = 3, PLACE_BYTES = 24 };

/* The table Message, the root; what is returned is to refer to the header. */
static uint32_t put_message(struct soda_flat *f, unsigned header, uint64_t body_bytes)
{
	static const uint8_t sizes[] = { 2, 1, REF, 8 }; /* version, header's type, header, body */
	uint32_t at[4];

	soda_flat_begin(f);
	soda_flat_table(f, sizes, 4, at);
	soda_flat_put(f, at[0], VERSION_5, 2);
	soda_flat_put(f, at[1], header, 1);
	soda_flat_put(f, at[3], body_bytes, 8);
	return at[2];
}

/* The vector of a field's pairs. */
static uint32_t put_metadata(struct soda_flat *f, const char *metadata)
{
	static const uint8_t sizes[] = { REF, REF }; /* key, value */
	uint32_t pairs = get_length(metadata), vector = soda_flat_vector(f, pairs, REF);

	metadata += sizeof(pairs);
	for (uint32_t i = 0; i < pairs; i++) {
		uint32_t at[2];

		soda_flat_refer(f, vector + REF * (i + 1), soda_flat_table(f, sizes, 2, at));
		for (unsigned k = 0; k < 2; k++) {
			uint32_t bytes = get_length(metadata);

			metadata += sizeof(bytes);
			soda_flat_refer(f, at[k], soda_flat_string(f, metadata, bytes));
			metadata += bytes;
		}
	}
	return vector;
}

static uint32_t put_type(struct soda_flat *f, const struct soda_arrow_type *type)
{
	uint8_t sizes[4] = { type->bytes[0], type->bytes[1], type->bytes[2] };
	uint32_t at[4], table, n = type->numbers;

	if (type->zone)
		sizes[n++] = REF;
	table = soda_flat_table(f, sizes, n, at);
	for (unsigned i = 0; i < type->numbers; i++)
		soda_flat_put(f, at[i], (uint32_t)type->value[i], type->bytes[i]);
	if (type->zone)
		soda_flat_refer(f, at[n - 1], soda_flat_string(f, type->zone, strlen(type->zone)));
	return table;
}

static uint32_t put_fields(struct soda_flat *f, const struct ArrowSchema *parent);

static uint32_t put_field(struct soda_flat *f, const struct ArrowSchema *s)
{
	/* name, nullable, type's number, type, dictionary, children, metadata */
	uint8_t sizes[] = { REF, 1, 1, REF, 0, REF, s->metadata ? REF : 0 };
	struct soda_arrow_type type = soda_arrow_type_of(s);
	const char *name = s->name ? s->name : "";
	uint32_t at[7], table = soda_flat_table(f, sizes, 7, at);

	soda_flat_put(f, at[1], !!(s->flags & ARROW_FLAG_NULLABLE), 1);
	soda_flat_put(f, at[2], type.id, 1);
	soda_flat_refer(f, at[0], soda_flat_string(f, name, strlen(name)));
	soda_flat_refer(f, at[3], put_type(f, &type));
	soda_flat_refer(f, at[5], put_fields(f, s));
	if (s->metadata)
		soda_flat_refer(f, at[6], put_metadata(f, s->metadata));
	return table;
}

/* The vector of a struct's, a list's or a schema's fields; readers want an empty one of others. */
static uint32_t put_fields(struct soda_flat *f, const struct ArrowSchema *parent)
{
	uint32_t n = (uint32_t)parent->n_children, vector = soda_flat_vector(f, n, REF);

	for (uint32_t i = 0; i < n; i++)
		soda_flat_refer(f, vector + REF * (i + 1), put_field(f, parent->children[i]));
	return vector;
}

/* The table Schema, which `from` is to refer to. */
static void put_schema(struct soda_flat *f, uint32_t from, const struct ArrowSchema *schema)
{
	uint8_t sizes[] = { 2, REF, schema->metadata ? REF : 0 }; /* byte order, fields, metadata */
	uint32_t at[3];

	soda_flat_refer(f, from, soda_flat_table(f, sizes, 3, at));
	soda_flat_put(f, at[0], __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__, 2);
	soda_flat_refer(f, at[1], put_fields(f, schema));
	if (schema->metadata)
		soda_flat_refer(f, at[2], put_metadata(f, schema->metadata));
}

void soda_arrow_put_schema(struct soda_flat *f, const struct ArrowSchema *schema)
{
	put_schema(f, put_message(f, HEADER_SCHEMA, 0), schema);
}

void soda_arrow_put_footer(struct soda_flat *f, const struct ArrowSchema *schema,
			   const struct soda_arrow_place *batches, uint32_t n)
{
	static const uint8_t sizes[] = { 2, REF, REF, REF }; /* version, schema, dictionaries... */
	uint32_t at[4], vector;

	soda_flat_begin(f);
	soda_flat_table(f, sizes, 4, at);
	soda_flat_put(f, at[0], VERSION_5, 2);
	put_schema(f, at[1], schema);
	soda_flat_refer(f, at[2], soda_flat_vector(f, 0, PLACE_BYTES));
	vector = soda_flat_vector(f, n, PLACE_BYTES); /* ...and batches */
	soda_flat_refer(f, at[3], vector);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t place = vector + 4 + PLACE_BYTES * i;

		soda_flat_put(f, place, batches[i].offset, 8);
		soda_flat_put(f, place + 8, batches[i].metadata_bytes, 4);
		soda_flat_put(f, place + 16, batches[i].body_bytes, 8);
	}
}

void soda_arrow_put_batch(struct soda_flat *f, uint64_t rows, const struct soda_arrow_node *nodes,
			  uint32_t nodes_n, const struct soda_arrow_buffer *buffers,
			  uint32_t buffers_n, uint64_t body_bytes)
{
	static const uint8_t sizes[] = { 8, REF, REF }; /* rows, nodes, buffers */
	uint32_t at[3], header = put_message(f, HEADER_BATCH, body_bytes), vector;

	soda_flat_refer(f, header, soda_flat_table(f, sizes, 3, at));
	soda_flat_put(f, at[0], rows, 8);
	vector = soda_flat_vector(f, nodes_n, sizeof(*nodes));
	soda_flat_refer(f, at[1], vector);
	for (uint32_t i = 0; i < nodes_n; i++) {
		soda_flat_put(f, vector + 4 + 16 * i, nodes[i].length, 8);
		soda_flat_put(f, vector + 12 + 16 * i, nodes[i].nulls, 8);
	}
	vector = soda_flat_vector(f, buffers_n, sizeof(*buffers));
	soda_flat_refer(f, at[2], vector);
	for (uint32_t i = 0; i < buffers_n; i++) {
		soda_flat_put(f, vector + 4 + 16 * i, buffers[i].offset, 8);
		soda_flat_put(f, vector + 12 + 16 * i, buffers[i].bytes, 8);
	}
}
