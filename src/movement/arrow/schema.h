/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an ArrowSchema says: which of its types we know, how their arrays lie in memory, and what
 * the metadata of an IPC stream say of them.
 */
#ifndef SODA_MOVEMENT_ARROW_SCHEMA_H
#define SODA_MOVEMENT_ARROW_SCHEMA_H

#include <stdint.h>

#include "movement/arrow/flat.h"
#include "soda_move.h"

enum {
	SODA_ARROW_DEPTH_MAX = 32,    /* levels of nested types */
	SODA_ARROW_FIELDS_MAX = 1024, /* of a schema, on all levels */
	SODA_ARROW_PAIRS_MAX = 1024,  /* of a field's own metadata */
};

/* A sentence about what is wrong. */
struct soda_arrow_why {
	char text[256];
};

/* Write the sentence. Returns err. */
int soda_arrow_wrong(struct soda_arrow_why *why, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* How an array of a type lies in memory: the buffers that it has, in their order. */
enum soda_arrow_layout {
	SODA_ARROW_NOTHING,    /* null: none */
	SODA_ARROW_FIXED,      /* validity, elements of `width` bytes */
	SODA_ARROW_BITS,       /* validity, bits */
	SODA_ARROW_VARIABLE,   /* validity, offsets of `width` bytes, data */
	SODA_ARROW_LIST,       /* validity, offsets of `width` bytes; one child */
	SODA_ARROW_FIXED_LIST, /* validity; one child, `width` elements each */
	SODA_ARROW_STRUCT,     /* validity; children */
};

struct soda_arrow_type {
	enum soda_arrow_layout layout;
	uint32_t width;
	uint8_t id;	  /* in the union Type of the metadata */
	uint8_t numbers;  /* fields of that type's table... */
	uint8_t bytes[3]; /* ...the size of each... */
	int32_t value[3]; /* ...and what it says */
	const char *zone; /* a timestamp's, or NULL; in the format string */
};

/* How many buffers an array of that layout has. */
int soda_arrow_buffers_of(enum soda_arrow_layout layout);

/* The type of a format string. -EINVAL: nobody knows it; -ENOTSUP: not implemented here. */
int soda_arrow_type_get(const char *format, struct soda_arrow_type *type_p);

/*
 * Check a schema: a struct ("+s"), whose children are the columns.  *fields_p: how many fields
 * there are below it.  -EINVAL: it is malformed, has been released, is nested too deeply; -ENOTSUP:
 * a type that is not implemented here; -E2BIG: too many fields.
 */
int soda_arrow_schema_check(const struct ArrowSchema *schema, uint32_t *fields_p,
			    struct soda_arrow_why *why);
/* The type of a field of a schema that has been checked. */
struct soda_arrow_type soda_arrow_type_of(const struct ArrowSchema *field);

/* The metadata of the message that begins a stream, of a checked schema. */
void soda_arrow_put_schema(struct soda_flat *f, const struct ArrowSchema *schema);

struct soda_arrow_node {
	uint64_t length, nulls;
};

struct soda_arrow_buffer {
	uint64_t offset, bytes; /* in the body; without padding */
};

/* A batch in a file. */
struct soda_arrow_place {
	uint64_t offset, metadata_bytes, body_bytes;
};

/* Those of a record batch. */
void soda_arrow_put_batch(struct soda_flat *f, uint64_t rows, const struct soda_arrow_node *nodes,
			  uint32_t nodes_n, const struct soda_arrow_buffer *buffers,
			  uint32_t buffers_n, uint64_t body_bytes);

/* The footer of a file. */
void soda_arrow_put_footer(struct soda_flat *f, const struct ArrowSchema *schema,
			   const struct soda_arrow_place *batches, uint32_t n);

/*
 * How long a field's own metadata are, which have been checked; NULL: 0.  max: nothing behind that
 * is read; 0: they are longer.
 */
uint64_t soda_arrow_metadata_bytes(const char *metadata, uint64_t max);

#endif
