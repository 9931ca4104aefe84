/* SPDX-License-Identifier: BSD-3-Clause */
#include "movement/arrow/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "movement/arrow/structs.h"

enum { PREFIX_BYTES = 8 }; /* of a message: four times 0xff, then the size of its metadata */

/* A part of an array: n elements from `from` on, not counting the array's own offset. */
struct part {
	const struct ArrowSchema *schema;
	const struct ArrowArray *array;
	uint64_t from, n;
};

struct planner {
	struct soda_arrow_plan *plan;
	struct soda_arrow_why *why;
	const struct soda_arrow_target *target;
	size_t pieces_max;
	uint64_t at; /* how much of the batch's body is placed */
	struct soda_arrow_node *nodes;
	struct soda_arrow_buffer *buffers;
	uint32_t nodes_n, buffers_n;
	struct soda_arrow_place *places; /* FILE: of the batches */
	struct soda_arrow_structs structs;
	uint32_t batches_n; /* so far */
};

static uint64_t round_up(uint64_t bytes, uint64_t align)
{
	return (bytes + align - 1) / align * align;
}

static const char *name_of(const struct part *p)
{
	return p->schema->name ? p->schema->name : "";
}

static int no_memory(struct planner *pl)
{
	return soda_arrow_wrong(pl->why, -ENOMEM, "no memory for a table's metadata");
}

/* Pieces */

static int add_piece(struct planner *pl, const void *from, uint64_t bytes, uint64_t offset)
{
	struct soda_arrow_plan *plan = pl->plan;

	if (plan->pieces_n == pl->pieces_max)
		return soda_arrow_wrong(pl->why, -E2BIG,
					"the table has more than %u parts: give fewer batches or"
					" columns at a time",
					SODA_MOVE_PIECES_MAX);
	plan->pieces[plan->pieces_n++] =
		(struct soda_move_piece){ .from = from, .bytes = bytes, .offset = offset };
	return 0;
}

/* A block of so many bytes, zeros. */
static uint8_t *add_block(struct planner *pl, uint64_t bytes)
{
	struct soda_arrow_block *b = calloc(1, sizeof(*b) + bytes);

	if (!b)
		return NULL;
	b->next = pl->plan->blocks;
	pl->plan->blocks = b;
	return b->data;
}

/*
 * A buffer of the body: `bytes` of memory at `from`, of which `placed` are in it and the others
 * zeros.
 */
static int add_buffer(struct planner *pl, const struct part *p, const void *from, uint64_t placed,
		      uint64_t bytes)
{
	int ret = 0;

	if (bytes > SODA_ARROW_BYTES_MAX || pl->at > SODA_ARROW_BYTES_MAX)
		return soda_arrow_wrong(pl->why, -EFBIG, "column '%.64s': more than 1 TiB",
					name_of(p));
	if (placed && !from)
		return soda_arrow_wrong(pl->why, -EINVAL,
					"column '%.64s': a buffer is NULL that needs to have"
					" %llu bytes",
					name_of(p), (unsigned long long)placed);
	pl->buffers[pl->buffers_n++] = (struct soda_arrow_buffer){ pl->at, bytes };
	if (placed)
		ret = add_piece(pl, from, placed, pl->at);
	pl->at += round_up(bytes, pl->target->align);
	return ret;
}

/* Memory at an index of a buffer. -EINVAL where there is none: the address overflows. */
static int find(struct planner *pl, const struct part *p, const void *base, uint64_t index,
		uint64_t width, uint64_t n, const void **from_p, uint64_t *bytes_p)
{
	uint64_t skip, bytes, end;

	if (__builtin_mul_overflow(index, width, &skip) ||
	    __builtin_mul_overflow(n, width, &bytes) || __builtin_add_overflow(skip, bytes, &end) ||
	    __builtin_add_overflow((uint64_t)(uintptr_t)base, end, &end)) {
		soda_arrow_wrong(pl->why, -EINVAL, "column '%.64s': a buffer's size overflows",
				 name_of(p));
		return -EINVAL;
	}
	*from_p = base ? (const void *)((uintptr_t)base + skip) : NULL;
	*bytes_p = bytes;
	return 0;
}

/* Bits from an element of the array on. */
static int add_bits(struct planner *pl, const struct part *p, const void *bits)
{
	uint64_t from = (uint64_t)p->array->offset + p->from, bytes;
	const void *at;
	uint8_t *made;
	int ret;

	ret = find(pl, p, bits, from / 8, 1, (p->n + 7) / 8, &at, &bytes);
	if (ret < 0 || !bits || !p->n || from % 8 == 0 || pl->target->measure)
		return ret < 0 ? ret : add_buffer(pl, p, at, bytes, bytes);
	made = add_block(pl, bytes);
	if (!made)
		return no_memory(pl);
	soda_arrow_bits_copy(made, bits, from, p->n);
	return add_buffer(pl, p, made, bytes, bytes);
}

/* The node of an array, and its validity bitmap, which is left out where there are no nulls. */
static int add_validity(struct planner *pl, const struct part *p)
{
	const struct ArrowArray *a = p->array;
	bool whole = p->from == 0 && p->n == (uint64_t)a->length;
	const void *bits = a->buffers[0];
	uint64_t nulls = 0;

	if (!bits && a->null_count > 0)
		return soda_arrow_wrong(pl->why, -EINVAL,
					"column '%.64s': it has %lld nulls, and no validity bitmap",
					name_of(p), (long long)a->null_count);
	if (bits && a->null_count)
		nulls = whole && a->null_count > 0
				? (uint64_t)a->null_count
				: soda_arrow_bits_zero(bits, (uint64_t)a->offset + p->from, p->n);
	pl->nodes[pl->nodes_n++] = (struct soda_arrow_node){ p->n, nulls };
	return nulls ? add_bits(pl, p, bits) : add_buffer(pl, p, NULL, 0, 0);
}

/* Offsets */

static int64_t get_offset(const void *offsets, uint64_t i, uint32_t width)
{
	int64_t wide;
	int32_t narrow;

	if (width == sizeof(wide)) {
		memcpy(&wide, (const uint8_t *)offsets + i * sizeof(wide), sizeof(wide));
		return wide;
	}
	memcpy(&narrow, (const uint8_t *)offsets + i * sizeof(narrow), sizeof(narrow));
	return narrow;
}

static int bad_offsets(struct planner *pl, const struct part *p, int64_t first, int64_t last)
{
	return soda_arrow_wrong(pl->why, -EINVAL,
				"column '%.64s': an offset of %lld follows one of %lld", name_of(p),
				(long long)last, (long long)first);
}

/* n + 1 offsets, less the first. */
static int rebase(struct planner *pl, const struct part *p, const void *offsets, uint32_t width,
		  uint8_t *out)
{
	int64_t first = get_offset(offsets, 0, width), last = first;

	for (uint64_t i = 0; i <= p->n; i++) {
		int64_t offset = get_offset(offsets, i, width), less;
		int32_t narrow;

		if (offset < last)
			return bad_offsets(pl, p, last, offset);
		last = offset;
		less = offset - first;
		narrow = (int32_t)less;
		memcpy(out + i * width, width == sizeof(less) ? (void *)&less : (void *)&narrow,
		       width);
	}
	return 0;
}

/*
 * The offsets of a part, and which elements of what they refer to it has.  An array without
 * elements may have no offsets; in the stream there is one, 0, which the padding is.
 */
static int add_offsets(struct planner *pl, const struct part *p, uint32_t width, uint64_t *first_p,
		       uint64_t *n_p)
{
	uint64_t from = (uint64_t)p->array->offset + p->from, bytes;
	const void *offsets;
	int64_t first, last;
	uint8_t *made = NULL;
	int ret;

	*first_p = *n_p = 0;
	if (!p->n)
		return add_buffer(pl, p, NULL, 0, width);
	ret = find(pl, p, p->array->buffers[1], from, width, p->n + 1, &offsets, &bytes);
	if (ret < 0 || !offsets)
		return ret < 0 ? ret : add_buffer(pl, p, NULL, bytes, bytes);
	first = get_offset(offsets, 0, width);
	last = get_offset(offsets, p->n, width);
	if (first < 0 || last < first)
		return bad_offsets(pl, p, first, last);
	*first_p = (uint64_t)first;
	*n_p = (uint64_t)(last - first);
	if (first && !pl->target->measure) {
		made = add_block(pl, bytes);
		ret = made ? rebase(pl, p, offsets, width, made) : no_memory(pl);
	}
	return ret < 0 ? ret : add_buffer(pl, p, made ? made : offsets, bytes, bytes);
}

/* Arrays */

static int check_buffers(struct planner *pl, const struct part *p, enum soda_arrow_layout layout)
{
	const struct ArrowArray *a = p->array;
	int buffers = soda_arrow_buffers_of(layout);

	if (a->n_buffers != buffers)
		return soda_arrow_wrong(pl->why, -EINVAL,
					"column '%.64s': an array of type '%.64s' has %d buffers,"
					" this has %lld",
					name_of(p), p->schema->format, buffers,
					(long long)a->n_buffers);
	if (a->n_children != p->schema->n_children)
		return soda_arrow_wrong(pl->why, -EINVAL,
					"column '%.64s': its schema has %lld children, its array"
					" %lld",
					name_of(p), (long long)p->schema->n_children,
					(long long)a->n_children);
	if ((a->n_buffers && !a->buffers) || (a->n_children && !a->children))
		return soda_arrow_wrong(pl->why, -EINVAL,
					"column '%.64s': `buffers` or `children` of its array is"
					" NULL",
					name_of(p));
	return 0;
}

/* What must hold of an array before anything in it is looked at. */
static int check_array(struct planner *pl, const struct part *p, enum soda_arrow_layout layout)
{
	const struct ArrowArray *a = p->array;

	if (!a || !a->release)
		return soda_arrow_wrong(pl->why, -EINVAL, "column '%.64s': its array %s",
					name_of(p), a ? "has been released" : "is NULL");
	if (a->length < 0 || a->offset < 0 || a->null_count < -1 || a->null_count > a->length)
		return soda_arrow_wrong(pl->why, -EINVAL,
					"column '%.64s': length %lld, offset %lld, null_count %lld"
					" make no sense",
					name_of(p), (long long)a->length, (long long)a->offset,
					(long long)a->null_count);
	if ((uint64_t)a->length > SODA_ARROW_ROWS_MAX || (uint64_t)a->offset > SODA_ARROW_ROWS_MAX)
		return soda_arrow_wrong(pl->why, -EFBIG, "column '%.64s': more than 2^40 elements",
					name_of(p));
	if (a->dictionary)
		return soda_arrow_wrong(
			pl->why, -EINVAL,
			"column '%.64s': its array has a dictionary, its schema none", name_of(p));
	if (p->from > (uint64_t)a->length || p->n > (uint64_t)a->length - p->from)
		return soda_arrow_wrong(pl->why, -EINVAL,
					"column '%.64s': an array has %lld elements, and %llu from"
					" %llu on are referred to",
					name_of(p), (long long)a->length, (unsigned long long)p->n,
					(unsigned long long)p->from);
	return check_buffers(pl, p, layout);
}

static int add_array(struct planner *pl, const struct part *p);

static int add_child(struct planner *pl, const struct part *p, int64_t i, uint64_t from, uint64_t n)
{
	struct part child = { p->schema->children[i], p->array->children[i], from, n };

	return add_array(pl, &child);
}

static int add_children(struct planner *pl, const struct part *p)
{
	uint64_t from = (uint64_t)p->array->offset + p->from;
	int ret = 0;

	for (int64_t i = 0; ret == 0 && i < p->array->n_children; i++)
		ret = add_child(pl, p, i, from, p->n);
	return ret;
}

static int add_fixed(struct planner *pl, const struct part *p, uint32_t width)
{
	const void *from;
	uint64_t bytes;
	int ret = find(pl, p, p->array->buffers[1], (uint64_t)p->array->offset + p->from, width,
		       p->n, &from, &bytes);

	return ret < 0 ? ret : add_buffer(pl, p, from, bytes, bytes);
}

static int add_variable(struct planner *pl, const struct part *p, uint32_t width)
{
	uint64_t first, n, bytes;
	const void *from;
	int ret = add_offsets(pl, p, width, &first, &n);

	if (ret < 0)
		return ret;
	ret = find(pl, p, p->array->buffers[2], first, 1, n, &from, &bytes);
	return ret < 0 ? ret : add_buffer(pl, p, from, bytes, bytes);
}

static int add_list(struct planner *pl, const struct part *p, uint32_t width)
{
	uint64_t first, n;
	int ret = add_offsets(pl, p, width, &first, &n);

	return ret < 0 ? ret : add_child(pl, p, 0, first, n);
}

static int add_fixed_list(struct planner *pl, const struct part *p, uint32_t each)
{
	uint64_t from = (uint64_t)p->array->offset + p->from, n = p->n;

	if (__builtin_mul_overflow(from, each, &from) || __builtin_mul_overflow(n, each, &n) ||
	    n > SODA_ARROW_ROWS_MAX)
		return soda_arrow_wrong(pl->why, -EFBIG, "column '%.64s': more than 2^40 elements",
					name_of(p));
	return add_child(pl, p, 0, from, n);
}

static int add_array(struct planner *pl, const struct part *p)
{
	struct soda_arrow_type type = soda_arrow_type_of(p->schema);
	int ret = check_array(pl, p, type.layout);

	if (ret < 0)
		return ret;
	if (type.layout == SODA_ARROW_NOTHING) {
		pl->nodes[pl->nodes_n++] = (struct soda_arrow_node){ p->n, p->n };
		return 0;
	}
	ret = add_validity(pl, p);
	if (ret < 0)
		return ret;
	switch (type.layout) {
	case SODA_ARROW_FIXED:
		return add_fixed(pl, p, type.width);
	case SODA_ARROW_BITS:
		return add_bits(pl, p, p->array->buffers[1]);
	case SODA_ARROW_VARIABLE:
		return add_variable(pl, p, type.width);
	case SODA_ARROW_LIST:
		return add_list(pl, p, type.width);
	case SODA_ARROW_FIXED_LIST:
		return add_fixed_list(pl, p, type.width);
	default:
		return add_children(pl, p);
	}
}

/* Streams */

/*
 * A message's metadata, with its prefix, at the end of the stream so far; what follows begins at a
 * multiple of `align`.
 */
static int add_message(struct planner *pl, const struct soda_flat *f, uint64_t align, size_t piece)
{
	struct soda_arrow_plan *plan = pl->plan;
	uint64_t end = round_up(plan->bytes + PREFIX_BYTES + f->bytes, align);
	uint32_t size = (uint32_t)(end - plan->bytes - PREFIX_BYTES);
	uint8_t *data;

	if (f->failed)
		return soda_arrow_wrong(
			pl->why, -ENOMEM,
			"a table's metadata do not fit into memory, or into 16 MiB");
	data = add_block(pl, PREFIX_BYTES + f->bytes);
	if (!data)
		return no_memory(pl);
	memset(data, 0xff, 4);
	for (unsigned i = 0; i < 4; i++)
		data[4 + i] = (uint8_t)(size >> 8 * i);
	memcpy(data + PREFIX_BYTES, f->at, f->bytes);
	plan->pieces[piece] = (struct soda_move_piece){ .from = data,
							.bytes = PREFIX_BYTES + f->bytes,
							.offset = plan->bytes };
	plan->bytes = end;
	return 0;
}

static int add_schema(struct planner *pl, const struct ArrowSchema *schema)
{
	size_t piece = pl->plan->pieces_n;
	struct soda_flat f;
	int ret = add_piece(pl, NULL, 0, 0);

	if (ret < 0)
		return ret;
	soda_arrow_put_schema(&f, schema);
	ret = add_message(pl, &f, SODA_ARROW_ALIGN_MIN, piece);
	soda_flat_free(&f);
	return ret;
}

/* A table has no rows that are null. */
static int check_table(struct planner *pl, const struct part *p)
{
	const struct ArrowArray *a = p->array;
	int ret = check_array(pl, p, SODA_ARROW_STRUCT);

	if (ret == 0 && a->null_count && a->buffers[0] &&
	    soda_arrow_bits_zero(a->buffers[0], (uint64_t)a->offset, p->n))
		return soda_arrow_wrong(pl->why, -EINVAL, "a table cannot have rows that are null");
	return ret;
}

/* The message of a batch whose columns have been placed. */
static int add_batch_message(struct planner *pl, uint64_t rows, size_t piece)
{
	struct soda_arrow_plan *plan = pl->plan;
	struct soda_arrow_place *place = &pl->places[pl->batches_n];
	struct soda_flat f;
	int ret;

	soda_arrow_put_batch(&f, rows, pl->nodes, pl->nodes_n, pl->buffers, pl->buffers_n, pl->at);
	place->offset = plan->bytes;
	ret = add_message(pl, &f, pl->target->align, piece);
	place->metadata_bytes = plan->bytes - place->offset;
	place->body_bytes = pl->at;
	soda_flat_free(&f);
	return ret;
}

/* The same for structures, which refer to columns by where they lie in the step. */
static void add_batch_structs(struct planner *pl, const struct ArrowSchema *schema, uint64_t rows)
{
	pl->plan->bytes = round_up(pl->plan->bytes, pl->target->align);
	for (uint32_t i = 0; i < pl->buffers_n; i++)
		pl->buffers[i].offset += pl->plan->bytes;
	soda_arrow_structs_batch(&pl->structs, schema, rows, pl->nodes, pl->buffers);
}

/* The columns' pieces are placed from 0 on, then moved: behind the message that they decide. */
static int add_batch(struct planner *pl, const struct ArrowSchema *schema,
		     const struct ArrowArray *batch)
{
	struct part table = { schema, batch, 0,
			      batch && batch->length > 0 ? (uint64_t)batch->length : 0 };
	bool structs = pl->target->form == SODA_MOVE_ARROW_STRUCTS;
	struct soda_arrow_plan *plan = pl->plan;
	size_t message = plan->pieces_n, columns = message + !structs;
	int ret = check_table(pl, &table);

	pl->at = pl->nodes_n = pl->buffers_n = 0;
	if (ret == 0 && !structs)
		ret = add_piece(pl, NULL, 0, 0);
	if (ret == 0)
		ret = add_children(pl, &table);
	if (ret == 0 && structs)
		add_batch_structs(pl, schema, table.n);
	else if (ret == 0)
		ret = add_batch_message(pl, table.n, message);
	if (ret < 0)
		return ret;
	for (size_t i = columns; i < plan->pieces_n; i++)
		plan->pieces[i].offset += plan->bytes;
	plan->bytes += pl->at;
	pl->batches_n++;
	if (plan->bytes > SODA_ARROW_BYTES_MAX)
		return soda_arrow_wrong(pl->why, -EFBIG, "the table is longer than 1 TiB");
	return 0;
}

/* The end of a stream: a message's first bytes, and the size 0, which the padding is. */
static int add_end(struct planner *pl)
{
	int ret = add_piece(pl, NULL, 4, pl->plan->bytes);

	if (ret < 0)
		return ret;
	pl->plan->pieces[pl->plan->pieces_n - 1].fill = 0xff;
	pl->plan->bytes += PREFIX_BYTES;
	return 0;
}

/* Files and structures */

static const char magic[] = "ARROW1";

enum { MAGIC_BYTES = sizeof(magic) - 1, TRAILER_BYTES = 4 + MAGIC_BYTES };

/* So many bytes that are made here, as a piece; NULL: *ret_p says why not. */
static uint8_t *add_made(struct planner *pl, uint64_t bytes, uint64_t offset, int *ret_p)
{
	uint8_t *data = add_block(pl, bytes);

	*ret_p = data ? add_piece(pl, data, bytes, offset) : no_memory(pl);
	return *ret_p < 0 ? NULL : data;
}

static int add_magic(struct planner *pl)
{
	int ret;
	uint8_t *data = add_made(pl, MAGIC_BYTES, 0, &ret);

	if (data)
		memcpy(data, magic, MAGIC_BYTES);
	pl->plan->bytes = round_up(MAGIC_BYTES, SODA_ARROW_ALIGN_MIN);
	return ret;
}

/* Readers begin at a file's end, which therefore is the step's. */
static int add_footer(struct planner *pl, const struct soda_flat *f)
{
	struct soda_arrow_plan *plan = pl->plan;
	uint64_t least = round_up(plan->bytes + f->bytes + TRAILER_BYTES, SODA_ARROW_ALIGN_MIN),
		 end = pl->target->bytes > least ? pl->target->bytes : least,
		 at = (end - TRAILER_BYTES - f->bytes) / SODA_ARROW_ALIGN_MIN *
		      SODA_ARROW_ALIGN_MIN,
		 size = end - TRAILER_BYTES - at;
	uint8_t *data;
	int ret;

	if (f->failed)
		return no_memory(pl);
	data = add_made(pl, end - at, at, &ret);
	if (!data)
		return ret;
	memcpy(data, f->at, f->bytes);
	for (unsigned i = 0; i < 4; i++)
		data[size + i] = (uint8_t)(size >> 8 * i);
	memcpy(data + size + 4, magic, MAGIC_BYTES);
	plan->bytes = end;
	return 0;
}

static int end_file(struct planner *pl, const struct ArrowSchema *schema)
{
	struct soda_flat f;
	int ret = add_end(pl);

	if (ret < 0)
		return ret;
	soda_arrow_put_footer(&f, schema, pl->places, pl->batches_n);
	ret = add_footer(pl, &f);
	soda_flat_free(&f);
	return ret;
}

/* Piece 0, made before the columns' and filled when all is known. */
static int begin_structs(struct planner *pl, const struct ArrowSchema *schema, size_t n)
{
	int ret;

	add_made(pl, SODA_ARROW_STRUCTS_HEADER, 0, &ret);
	pl->plan->bytes = SODA_ARROW_STRUCTS_HEADER;
	soda_arrow_structs_begin(&pl->structs, schema, (uint32_t)n);
	return ret;
}

static int end_structs(struct planner *pl)
{
	struct soda_arrow_plan *plan = pl->plan;
	const struct soda_flat *f = &pl->structs.flat;
	uint8_t *data;
	int ret;

	if (f->failed)
		return no_memory(pl);
	soda_arrow_structs_header((uint8_t *)(uintptr_t)plan->pieces[0].from, plan->bytes,
				  f->bytes);
	data = add_made(pl, f->bytes, plan->bytes, &ret);
	if (data)
		memcpy(data, f->at, f->bytes);
	plan->bytes += round_up(f->bytes, SODA_ARROW_ALIGN_MIN);
	return ret;
}

static int begin(struct planner *pl, const struct ArrowSchema *schema, size_t n)
{
	int ret = 0;

	if (pl->target->form == SODA_MOVE_ARROW_STRUCTS)
		return begin_structs(pl, schema, n);
	if (pl->target->form == SODA_MOVE_ARROW_FILE)
		ret = add_magic(pl);
	return ret < 0 ? ret : add_schema(pl, schema);
}

static int end(struct planner *pl, const struct ArrowSchema *schema)
{
	switch (pl->target->form) {
	case SODA_MOVE_ARROW_STRUCTS:
		return end_structs(pl);
	case SODA_MOVE_ARROW_FILE:
		return end_file(pl, schema);
	default:
		return add_end(pl);
	}
}

/* Room for as many pieces as there can be; buffers are at most three an array. */
static int make_room(struct planner *pl, uint32_t fields, size_t n)
{
	uint64_t most = 4 + n * (1 + 3 * (uint64_t)fields);

	pl->pieces_max = most < SODA_MOVE_PIECES_MAX ? most : SODA_MOVE_PIECES_MAX;
	pl->plan->pieces = calloc(pl->pieces_max, sizeof(*pl->plan->pieces));
	pl->nodes = calloc(fields + 1, sizeof(*pl->nodes));
	pl->buffers = calloc(3 * fields + 1, sizeof(*pl->buffers));
	pl->places = calloc(n + 1, sizeof(*pl->places));
	return pl->plan->pieces && pl->nodes && pl->buffers && pl->places ? 0 : no_memory(pl);
}

static int make(struct planner *pl, const struct ArrowSchema *schema,
		const struct ArrowArray *const *batches, size_t n)
{
	uint32_t fields;
	int ret = soda_arrow_schema_check(schema, &fields, pl->why);

	if (ret == 0 && n > SODA_MOVE_PIECES_MAX)
		return soda_arrow_wrong(pl->why, -E2BIG, "%zu batches: at most %u fit into a list",
					n, SODA_MOVE_PIECES_MAX);
	if (ret == 0 && n && !batches)
		return soda_arrow_wrong(pl->why, -EINVAL, "`batches` is NULL, and %zu are named",
					n);
	if (ret == 0)
		ret = make_room(pl, fields, n);
	if (ret == 0)
		ret = begin(pl, schema, n);
	for (size_t i = 0; ret == 0 && i < n; i++)
		ret = add_batch(pl, schema, batches[i]);
	return ret < 0 ? ret : end(pl, schema);
}

static int check_target(const struct soda_arrow_target *target, struct soda_arrow_why *why)
{
	unsigned align = target->align;

	if (align < SODA_ARROW_ALIGN_MIN || align > SODA_ARROW_ALIGN_MAX || (align & (align - 1)))
		return soda_arrow_wrong(why, -EINVAL,
					"columns can be aligned to 8, 16 ... %d bytes",
					SODA_ARROW_ALIGN_MAX);
	if (target->form > SODA_MOVE_ARROW_STRUCTS)
		return soda_arrow_wrong(why, -EINVAL, "form %u: there is no such form of a table",
					target->form);
	return 0;
}

int soda_arrow_plan_make(const struct ArrowSchema *schema, const struct ArrowArray *const *batches,
			 size_t n, const struct soda_arrow_target *target,
			 struct soda_arrow_plan *plan_p, struct soda_arrow_why *why)
{
	struct soda_arrow_plan plan = { 0 };
	struct planner pl = { .plan = &plan, .why = why, .target = target };
	int ret = check_target(target, why);

	if (ret < 0)
		return ret;
	ret = make(&pl, schema, batches, n);
	free(pl.nodes);
	free(pl.buffers);
	free(pl.places);
	soda_arrow_structs_free(&pl.structs);
	if (ret < 0)
		soda_arrow_plan_free(&plan);
	else
		*plan_p = plan;
	return ret;
}

int soda_arrow_plan_copy(struct soda_arrow_plan *plan)
{
	struct soda_arrow_block *b = calloc(1, sizeof(*b) + plan->bytes);

	if (!b)
		return -ENOMEM;
	for (size_t i = 0; i < plan->pieces_n; i++) {
		const struct soda_move_piece *p = &plan->pieces[i];

		if (p->from)
			memcpy(b->data + p->offset, p->from, p->bytes);
		else
			memset(b->data + p->offset, (int)p->fill, p->bytes);
	}
	soda_arrow_blocks_free(plan->blocks);
	plan->blocks = b;
	plan->pieces[0] = (struct soda_move_piece){ .from = b->data, .bytes = plan->bytes };
	plan->pieces_n = 1;
	return 0;
}

void soda_arrow_blocks_free(struct soda_arrow_block *block)
{
	while (block) {
		struct soda_arrow_block *next = block->next;

		free(block);
		block = next;
	}
}

void soda_arrow_plan_free(struct soda_arrow_plan *plan)
{
	free(plan->pieces);
	soda_arrow_blocks_free(plan->blocks);
	*plan = (struct soda_arrow_plan){ 0 };
}
