/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "movement/arrow/plan.h"
#include "movement/arrow/structs.h"

/* A step, of which nothing is believed. */
struct image {
	const uint8_t *step, *structs;
	uint64_t bytes, structs_bytes;
	unsigned fields; /* met so far, by what reads a schema */
	/* The bound of a copy: each field has its own strings in the step, so it is no larger. */
	uint64_t strings_bytes;
	struct soda_arrow_why *why;
};

static uint64_t get_number(const uint8_t *at, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes; i++)
		value |= (uint64_t)at[i] << 8 * i;
	return value;
}

static int malformed(struct image *im, const char *what)
{
	return soda_arrow_wrong(im->why, -EINVAL, "the step's table is malformed: %s", what);
}

static int no_memory(struct image *im)
{
	return soda_arrow_wrong(im->why, -ENOMEM, "no memory for a table's structures");
}

/* What lies behind a length at `at`, of elements of so many bytes; NULL: not all within. */
static const uint8_t *look(const struct image *im, uint64_t at, unsigned element, uint64_t *n_p)
{
	if (at < 4 || at > im->structs_bytes || im->structs_bytes - at < 4)
		return NULL;
	*n_p = get_number(im->structs + at, 4);
	return *n_p * element <= im->structs_bytes - at - 4 ? im->structs + at + 4 : NULL;
}

static uint64_t number(const uint8_t *vector, uint64_t i)
{
	return get_number(vector + 8 * i, 8);
}

/* A vector of exactly n numbers. */
static const uint8_t *numbers(const struct image *im, uint64_t at, uint64_t n)
{
	uint64_t has;
	const uint8_t *vector = look(im, at, 8, &has);

	return vector && has == n ? vector : NULL;
}

/* A string, which ends with a zero. */
static const char *text(const struct image *im, uint64_t at, uint64_t *bytes_p)
{
	const uint8_t *string = look(im, at, 1, bytes_p);

	if (!string || string + *bytes_p == im->structs + im->structs_bytes || string[*bytes_p])
		return NULL;
	return (const char *)string;
}

/* *root_p: the schema's position and the batches'; *n_p: how many batches. */
static int open_image(struct image *im, const void *step, uint64_t bytes, const uint8_t **root_p,
		      uint64_t *n_p, struct soda_arrow_why *why)
{
	uint64_t at, n, root;

	*im = (struct image){ .step = step, .bytes = bytes, .why = why };
	if (bytes < SODA_ARROW_STRUCTS_HEADER || memcmp(step, SODA_ARROW_STRUCTS_MAGIC, 8) != 0)
		return soda_arrow_wrong(why, -EINVAL,
					"the step has no table of the C data interface: its"
					" producer has asked for another form, or for none");
	if (number(im->step + 8, 2) != (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__))
		return soda_arrow_wrong(why, -EINVAL, "the table has another byte order");
	at = number(im->step + 8, 0);
	n = number(im->step + 8, 1);
	if (at > bytes || n > bytes - at || n < 4)
		return malformed(im, "its structures lie outside of it");
	im->structs = im->step + at;
	im->structs_bytes = n;
	root = get_number(im->structs, 4);
	*root_p = look(im, root, 8, n_p);
	if (!*root_p || !*n_p)
		return malformed(im, "it has no root");
	(*n_p)--;
	return 0;
}

/* Schemas */

/* A field's own memory, behind its private_data; children may be taken out of it. */
struct schema_memory {
	struct ArrowSchema *children;
	struct ArrowSchema **pointers;
	char *strings;
};

static void release_schema(struct ArrowSchema *s)
{
	struct schema_memory *m = s->private_data;

	for (int64_t i = 0; i < s->n_children; i++)
		if (m->children[i].release)
			m->children[i].release(&m->children[i]);
	free(m->children);
	free(m->pointers);
	free(m->strings);
	free(m);
	s->release = NULL;
}

/* Memory for n children, and for strings of so many bytes: *s can be released. */
static int make_schema(struct image *im, struct ArrowSchema *s, uint64_t n, uint64_t string_bytes)
{
	struct schema_memory *m = calloc(1, sizeof(*m));

	if (!m)
		return no_memory(im);
	*s = (struct ArrowSchema){ .release = release_schema, .private_data = m };
	m->children = calloc(n + 1, sizeof(*m->children));
	m->pointers = calloc(n + 1, sizeof(*m->pointers));
	m->strings = malloc(string_bytes);
	if (!m->children || !m->pointers || !m->strings)
		return no_memory(im);
	for (uint64_t i = 0; i < n; i++)
		m->pointers[i] = &m->children[i];
	s->n_children = (int64_t)n;
	s->children = n ? m->pointers : NULL;
	return 0;
}

struct strings {
	const char *format, *name, *metadata;
	uint64_t format_bytes, name_bytes, metadata_bytes;
};

static int read_strings(struct image *im, const uint8_t *vector, struct strings *s)
{
	s->format = text(im, number(vector, 0), &s->format_bytes);
	s->name = text(im, number(vector, 1), &s->name_bytes);
	s->metadata = number(vector, 2) ? text(im, number(vector, 2), &s->metadata_bytes) : NULL;
	if (!s->format || !s->name || strlen(s->format) != s->format_bytes ||
	    strlen(s->name) != s->name_bytes || (number(vector, 2) && !s->metadata))
		return malformed(im, "a field's strings");
	if (s->metadata &&
	    (!s->metadata_bytes ||
	     soda_arrow_metadata_bytes(s->metadata, s->metadata_bytes) != s->metadata_bytes))
		return malformed(im, "a field's metadata");
	im->strings_bytes += s->format_bytes + s->name_bytes + s->metadata_bytes;
	if (im->strings_bytes > im->structs_bytes)
		return malformed(im, "its fields' strings are more than it has");
	return 0;
}

static void take_strings(struct ArrowSchema *s, const struct strings *strings)
{
	char *at = ((struct schema_memory *)s->private_data)->strings;

	s->format = memcpy(at, strings->format, strings->format_bytes + 1);
	at += strings->format_bytes + 1;
	s->name = memcpy(at, strings->name, strings->name_bytes + 1);
	at += strings->name_bytes + 1;
	if (strings->metadata)
		s->metadata = memcpy(at, strings->metadata, strings->metadata_bytes);
}

/* The caller releases *s, if it can be, also after a failure. */
static int read_schema(struct image *im, uint64_t at, unsigned depth, struct ArrowSchema *s)
{
	const uint8_t *vector = numbers(im, at, SODA_ARROW_STRUCTS_SCHEMA), *children;
	struct strings strings = { 0 };
	uint64_t n = vector ? number(vector, 4) : 0;
	int ret;

	s->release = NULL;
	if (!vector || depth > SODA_ARROW_DEPTH_MAX || n > SODA_ARROW_FIELDS_MAX)
		return malformed(im, "a field, or how deep they are nested");
	im->fields += (unsigned)n; /* a field that refers to itself ends there */
	children = n ? numbers(im, number(vector, 5), n) : NULL;
	if (im->fields > SODA_ARROW_FIELDS_MAX || (n && !children))
		return malformed(im, "a field's children");
	ret = read_strings(im, vector, &strings);
	if (ret == 0)
		ret = make_schema(im, s, n,
				  strings.format_bytes + strings.name_bytes +
					  strings.metadata_bytes + 2);
	if (ret == 0) {
		take_strings(s, &strings);
		s->flags = (int64_t)number(vector, 3);
	}
	for (uint64_t i = 0; ret == 0 && i < n; i++)
		ret = read_schema(im, number(children, i), depth + 1, s->children[i]);
	return ret;
}

/* The root's schema, with all that holds of schemas. */
static int read_root(struct image *im, uint64_t at, struct ArrowSchema *s)
{
	int ret = read_schema(im, at, 0, s);
	uint32_t fields;

	if (ret == 0)
		ret = soda_arrow_schema_check(s, &fields, im->why);
	if (ret == -ENOTSUP || ret == -E2BIG)
		ret = -EINVAL;
	if (ret < 0 && s->release)
		s->release(s);
	return ret;
}

int soda_arrow_structs_schema(const void *step, uint64_t bytes, struct ArrowSchema *schema_p,
			      size_t *batches_p, struct soda_arrow_why *why)
{
	struct ArrowSchema schema;
	const uint8_t *root;
	struct image im;
	uint64_t n;
	int ret = open_image(&im, step, bytes, &root, &n, why);

	if (ret == 0)
		ret = read_root(&im, number(root, 0), &schema);
	if (ret < 0)
		return ret;
	*schema_p = schema;
	*batches_p = n;
	return 0;
}

/* Arrays */

struct array_memory {
	struct ArrowArray *children;
	struct ArrowArray **pointers;
	const void *buffers[3];
};

static void release_array(struct ArrowArray *a)
{
	struct array_memory *m = a->private_data;

	for (int64_t i = 0; i < a->n_children; i++)
		if (m->children[i].release)
			m->children[i].release(&m->children[i]);
	free(m->children);
	free(m->pointers);
	free(m);
	a->release = NULL;
}

static int make_array(struct image *im, struct ArrowArray *a, int64_t n, int buffers)
{
	struct array_memory *m = calloc(1, sizeof(*m));

	if (!m)
		return no_memory(im);
	*a = (struct ArrowArray){ .release = release_array, .private_data = m };
	m->children = calloc((size_t)n + 1, sizeof(*m->children));
	m->pointers = calloc((size_t)n + 1, sizeof(*m->pointers));
	if (!m->children || !m->pointers)
		return no_memory(im);
	for (int64_t i = 0; i < n; i++)
		m->pointers[i] = &m->children[i];
	a->n_children = n;
	a->children = n ? m->pointers : NULL;
	a->n_buffers = buffers;
	a->buffers = m->buffers;
	return 0;
}

/* An array that is being read: where its buffers are, and what it must have. */
struct reading {
	struct image *im;
	const struct ArrowSchema *schema;
	struct soda_arrow_type type;
	struct ArrowArray *array;
	const uint8_t *buffers;
	uint64_t length;
	uint64_t children; /* elements that each child must have */
};

static int wrong_array(const struct reading *r, const char *what)
{
	return soda_arrow_wrong(r->im->why, -EINVAL,
				"the step's table is malformed: column '%.64s': %s",
				r->schema->name, what);
}

/* Buffer i must have so many bytes. */
static int take_buffer(struct reading *r, int i, uint64_t bytes)
{
	uint64_t at = number(r->buffers, (uint64_t)i);

	if (!at && !bytes)
		return 0;
	if (!at || at % SODA_ARROW_ALIGN_MIN || at > r->im->bytes || bytes > r->im->bytes - at)
		return wrong_array(r, "a buffer lies outside of the step");
	r->array->buffers[i] = r->im->step + at;
	return 0;
}

static int take_elements(struct reading *r, int i, uint64_t width)
{
	uint64_t bytes;

	if (__builtin_mul_overflow(r->length, width, &bytes))
		return wrong_array(r, "it is too long");
	return take_buffer(r, i, bytes);
}

static int64_t offset_at(const struct reading *r, uint64_t i)
{
	const void *offsets = r->array->buffers[1];
	int64_t wide;
	int32_t narrow;

	if (r->type.width == sizeof(wide)) {
		memcpy(&wide, (const uint8_t *)offsets + i * sizeof(wide), sizeof(wide));
		return wide;
	}
	memcpy(&narrow, (const uint8_t *)offsets + i * sizeof(narrow), sizeof(narrow));
	return narrow;
}

/* Offsets never fall; *end_p: the last. A user of the table looks at any of them. */
static int take_offsets(struct reading *r, uint64_t *end_p)
{
	uint64_t n = r->length + 1;
	int64_t last = 0;
	int ret;

	*end_p = 0;
	if (!r->length && !number(r->buffers, 1))
		return 0;
	ret = take_buffer(r, 1, n * r->type.width);
	for (uint64_t i = 0; ret == 0 && i < n; i++) {
		int64_t offset = offset_at(r, i);

		if (offset < last)
			ret = wrong_array(r, "an offset is less than the one before it");
		last = offset;
	}
	*end_p = (uint64_t)last;
	return ret;
}

static int take_validity(struct reading *r, uint64_t nulls)
{
	uint64_t bits = (r->length + 7) / 8;

	if (nulls > r->length)
		return wrong_array(r, "more nulls than elements");
	r->array->null_count = (int64_t)nulls;
	return take_buffer(r, 0, nulls || number(r->buffers, 0) ? bits : 0);
}

/* The buffers behind the first, and how long the children must be. */
static int take_buffers(struct reading *r)
{
	uint64_t end;
	int ret;

	switch (r->type.layout) {
	case SODA_ARROW_FIXED:
		return take_elements(r, 1, r->type.width);
	case SODA_ARROW_BITS:
		return take_buffer(r, 1, (r->length + 7) / 8);
	case SODA_ARROW_VARIABLE:
		ret = take_offsets(r, &end);
		return ret < 0 ? ret : take_buffer(r, 2, end);
	case SODA_ARROW_LIST:
		return take_offsets(r, &r->children);
	case SODA_ARROW_FIXED_LIST:
		if (__builtin_mul_overflow(r->length, r->type.width, &r->children))
			return wrong_array(r, "it is too long");
		return 0;
	default:
		r->children = r->length;
		return 0;
	}
}

static int read_array(struct image *im, const struct ArrowSchema *schema, uint64_t at,
		      uint64_t least, struct ArrowArray *a);

static int read_children(struct reading *r, uint64_t at)
{
	int64_t n = r->schema->n_children;
	const uint8_t *children = n ? numbers(r->im, at, (uint64_t)n) : NULL;
	int ret = n && !children ? wrong_array(r, "its children") : 0;

	for (int64_t i = 0; ret == 0 && i < n; i++)
		ret = read_array(r->im, r->schema->children[i], number(children, (uint64_t)i),
				 r->children, r->array->children[i]);
	return ret;
}

static int read_buffers(struct reading *r, uint64_t nulls)
{
	int ret = 0;

	if (r->type.layout == SODA_ARROW_NOTHING) {
		r->array->null_count = (int64_t)r->length;
		return 0;
	}
	if (!r->buffers)
		return wrong_array(r, "its buffers");
	ret = take_validity(r, nulls);
	return ret < 0 ? ret : take_buffers(r);
}

/* At least so many elements. The caller releases *a, if it can be, also after a failure. */
static int read_array(struct image *im, const struct ArrowSchema *schema, uint64_t at,
		      uint64_t least, struct ArrowArray *a)
{
	const uint8_t *vector = numbers(im, at, SODA_ARROW_STRUCTS_ARRAY);
	struct reading r = { im, schema, soda_arrow_type_of(schema), a, NULL, 0, 0 };
	int buffers = soda_arrow_buffers_of(r.type.layout), ret;

	a->release = NULL;
	if (!vector || number(vector, 3) != (uint64_t)buffers ||
	    number(vector, 4) != (uint64_t)schema->n_children || number(vector, 2))
		return wrong_array(&r, "its array is not that of its type");
	r.length = number(vector, 0);
	if (r.length < least || r.length > SODA_ARROW_ROWS_MAX)
		return wrong_array(&r, "it has too few elements, or too many");
	r.buffers = buffers ? numbers(im, number(vector, 5), (uint64_t)buffers) : NULL;
	ret = make_array(im, a, schema->n_children, buffers);
	if (ret < 0)
		return ret;
	a->length = (int64_t)r.length;
	ret = read_buffers(&r, number(vector, 1));
	return ret < 0 ? ret : read_children(&r, number(vector, 6));
}

int soda_arrow_structs_array(const void *step, uint64_t bytes, size_t i, struct ArrowArray *batch_p,
			     struct soda_arrow_why *why)
{
	struct ArrowSchema schema;
	struct ArrowArray array;
	const uint8_t *root;
	struct image im;
	uint64_t n;
	int ret = open_image(&im, step, bytes, &root, &n, why);

	if (ret == 0 && i >= n)
		return soda_arrow_wrong(why, -EINVAL,
					"the step's table has %llu batches, and"
					" number %zu is asked for",
					(unsigned long long)n, i);
	if (ret == 0)
		ret = read_root(&im, number(root, 0), &schema);
	if (ret < 0)
		return ret;
	ret = read_array(&im, &schema, number(root, i + 1), 0, &array);
	schema.release(&schema);
	if (ret == 0)
		*batch_p = array;
	else if (array.release)
		array.release(&array);
	return ret;
}
