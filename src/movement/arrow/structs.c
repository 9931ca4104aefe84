/* SPDX-License-Identifier: BSD-3-Clause */
#include "movement/arrow/structs.h"

#include <string.h>

enum { COUNT = 4, NUMBER = 8 }; /* bytes: of a vector's length, of an element */

static void set(struct soda_flat *f, uint32_t vector, uint32_t i, uint64_t value)
{
	soda_flat_put(f, vector + COUNT + NUMBER * i, value, NUMBER);
}

static uint32_t put_schema(struct soda_flat *f, const struct ArrowSchema *s)
{
	uint32_t n = (uint32_t)s->n_children, children = 0,
		 at = soda_flat_vector(f, SODA_ARROW_STRUCTS_SCHEMA, NUMBER);
	const char *name = s->name ? s->name : "";
	uint64_t metadata = soda_arrow_metadata_bytes(s->metadata, SODA_FLAT_MAX);

	set(f, at, 0, soda_flat_string(f, s->format, strlen(s->format)));
	set(f, at, 1, soda_flat_string(f, name, strlen(name)));
	f->failed = f->failed || (s->metadata && !metadata);
	if (s->metadata)
		set(f, at, 2, soda_flat_string(f, s->metadata, metadata));
	set(f, at, 3, (uint64_t)s->flags);
	set(f, at, 4, n);
	if (n)
		children = soda_flat_vector(f, n, NUMBER);
	set(f, at, 5, children);
	for (uint32_t i = 0; i < n; i++)
		set(f, children, i, put_schema(f, s->children[i]));
	return at;
}

void soda_arrow_structs_begin(struct soda_arrow_structs *s, const struct ArrowSchema *schema,
			      uint32_t batches)
{
	*s = (struct soda_arrow_structs){ 0 };
	soda_flat_begin(&s->flat);
	s->root = soda_flat_vector(&s->flat, batches + 1, NUMBER);
	soda_flat_refer(&s->flat, 0, s->root);
	set(&s->flat, s->root, 0, put_schema(&s->flat, schema));
}

/* The arrays that are still to be written: their nodes and buffers, in depth-first order. */
struct rest {
	const struct soda_arrow_node *node;
	const struct soda_arrow_buffer *buffer;
};

static uint32_t put_buffers(struct soda_flat *f, struct rest *rest, uint32_t n)
{
	uint32_t at = soda_flat_vector(f, n, NUMBER);

	for (uint32_t i = 0; i < n; i++, rest->buffer++)
		set(f, at, i, rest->buffer->bytes ? rest->buffer->offset : 0);
	return at;
}

static uint32_t put_array(struct soda_flat *f, const struct ArrowSchema *s, struct rest *rest);

static uint32_t put_children(struct soda_flat *f, const struct ArrowSchema *s, struct rest *rest)
{
	uint32_t n = (uint32_t)s->n_children, at = n ? soda_flat_vector(f, n, NUMBER) : 0;

	for (uint32_t i = 0; i < n; i++)
		set(f, at, i, put_array(f, s->children[i], rest));
	return at;
}

static uint32_t put_struct(struct soda_flat *f, const struct soda_arrow_node *node,
			   const struct ArrowSchema *s, uint32_t buffers)
{
	uint32_t at = soda_flat_vector(f, SODA_ARROW_STRUCTS_ARRAY, NUMBER);

	set(f, at, 0, node->length);
	set(f, at, 1, node->nulls);
	set(f, at, 3, buffers);
	set(f, at, 4, (uint64_t)s->n_children);
	return at;
}

static uint32_t put_array(struct soda_flat *f, const struct ArrowSchema *s, struct rest *rest)
{
	uint32_t n = (uint32_t)soda_arrow_buffers_of(soda_arrow_type_of(s).layout),
		 at = put_struct(f, rest->node++, s, n);

	if (n)
		set(f, at, 5, put_buffers(f, rest, n));
	set(f, at, 6, put_children(f, s, rest));
	return at;
}

/* The table itself is a struct without a validity bitmap. */
void soda_arrow_structs_batch(struct soda_arrow_structs *s, const struct ArrowSchema *schema,
			      uint64_t rows, const struct soda_arrow_node *nodes,
			      const struct soda_arrow_buffer *buffers)
{
	const struct soda_arrow_node table = { rows, 0 };
	struct rest rest = { nodes, buffers };
	uint32_t at = put_struct(&s->flat, &table, schema, 1);

	set(&s->flat, at, 5, soda_flat_vector(&s->flat, 1, NUMBER));
	set(&s->flat, at, 6, put_children(&s->flat, schema, &rest));
	set(&s->flat, s->root, ++s->batches, at);
}

void soda_arrow_structs_free(struct soda_arrow_structs *s)
{
	soda_flat_free(&s->flat);
}

void soda_arrow_structs_header(uint8_t header[SODA_ARROW_STRUCTS_HEADER], uint64_t at,
			       uint64_t bytes)
{
	const uint64_t numbers[] = { at, bytes, __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ };

	memset(header, 0, SODA_ARROW_STRUCTS_HEADER);
	memcpy(header, SODA_ARROW_STRUCTS_MAGIC, NUMBER);
	for (unsigned i = 0; i < 3 * NUMBER; i++)
		header[NUMBER + i] = (uint8_t)(numbers[i / NUMBER] >> 8 * (i % NUMBER));
}
