/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Structures of the Arrow C data interface in a step, such that a program which maps it anywhere
 * can have them: what is a pointer there is a position here.
 *
 *   header      magic, where the structures are, how many bytes they have, the machine's byte order
 *   columns     as in the body of an IPC batch
 *   structures  a FlatBuffer of vectors of 64-bit numbers, and of strings:
 *     root              the schema's position, then that of each batch
 *     ArrowSchema, 9    format, name, metadata, flags, n_children, children...
 *     ArrowArray, 10    length, null_count, offset, n_buffers, n_children, buffers, children...
 *     children          their positions
 *     buffers           where they lie in the step
 *
 * Positions count from the structures' start; 0 is NULL.  What has no meaning in another process
 * (release, private_data, and dictionary, which we do not have) is 0.
 */
#ifndef SODA_MOVEMENT_ARROW_STRUCTS_H
#define SODA_MOVEMENT_ARROW_STRUCTS_H

#include <stddef.h>

#include "movement/arrow/schema.h"

#define SODA_ARROW_STRUCTS_MAGIC "SODACDI1"

enum {
	SODA_ARROW_STRUCTS_HEADER = 64,
	SODA_ARROW_STRUCTS_SCHEMA = 9, /* numbers */
	SODA_ARROW_STRUCTS_ARRAY = 10,
};

struct soda_arrow_structs {
	struct soda_flat flat;
	uint32_t root, batches; /* where the root is, how many it has */
};

/* structs.c: writing. Without memory s->flat fails. */

/* Begin with a checked schema; so many batches follow. */
void soda_arrow_structs_begin(struct soda_arrow_structs *s, const struct ArrowSchema *schema,
			      uint32_t batches);
/* A batch whose nodes, in depth-first order, and buffers, by their place in the step, are these. */
void soda_arrow_structs_batch(struct soda_arrow_structs *s, const struct ArrowSchema *schema,
			      uint64_t rows, const struct soda_arrow_node *nodes,
			      const struct soda_arrow_buffer *buffers);
void soda_arrow_structs_free(struct soda_arrow_structs *s);
/* Write a step's header. */
void soda_arrow_structs_header(uint8_t header[SODA_ARROW_STRUCTS_HEADER], uint64_t at,
			       uint64_t bytes);

/*
 * structs_read.c: reading a step that anybody may have written, and that does not change.
 * -EINVAL: it has no such table, or a malformed one; -ENOMEM.  What comes out is released by its
 * `release`, and points to the step.
 */
int soda_arrow_structs_schema(const void *step, uint64_t bytes, struct ArrowSchema *schema_p,
			      size_t *batches_p, struct soda_arrow_why *why);
int soda_arrow_structs_array(const void *step, uint64_t bytes, size_t i, struct ArrowArray *batch_p,
			     struct soda_arrow_why *why);

#endif
