/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/movement.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/field.h"

/* Layouts */

static uint8_t *put(uint8_t *out, uint64_t value, unsigned bytes)
{
	soda_wire_put(out, value, bytes);
	return out + bytes;
}

static uint64_t get(const uint8_t **in, unsigned bytes)
{
	const uint8_t *at = *in;

	*in += bytes;
	return soda_wire_get(at, bytes);
}

void soda_wire_put_move_start(uint8_t *out, const struct soda_wire_move_start *s)
{
	out = put(out, s->version, 4);
	out = put(out, s->flags, 4);
	out = put(out, s->token_at, 8);
	memcpy(out, s->token, SODA_MOVE_TOKEN_BYTES);
}

int soda_wire_get_move_start(const void *bytes_in, size_t bytes, struct soda_wire_move_start *s)
{
	const uint8_t *in = bytes_in;

	if (bytes != SODA_WIRE_MOVE_START_BYTES)
		return -EPROTO;
	s->version = (uint32_t)get(&in, 4);
	s->flags = (uint32_t)get(&in, 4);
	s->token_at = get(&in, 8);
	memcpy(s->token, in, SODA_MOVE_TOKEN_BYTES);
	return 0;
}

void soda_wire_put_move_started(uint8_t *out, const struct soda_wire_move_started *s)
{
	out = put(out, s->version, 4);
	out = put(out, s->way, 4);
	put(out, s->ring_bytes, 4);
}

int soda_wire_get_move_started(const void *bytes_in, size_t bytes, struct soda_wire_move_started *s)
{
	const uint8_t *in = bytes_in;

	if (bytes != SODA_WIRE_MOVE_STARTED_BYTES)
		return -EPROTO;
	s->version = (uint32_t)get(&in, 4);
	s->way = (uint32_t)get(&in, 4);
	s->ring_bytes = (uint32_t)get(&in, 4);
	return 0;
}

void soda_wire_put_move_reserve(uint8_t *out, const struct soda_wire_move_reserve *r)
{
	out = put(out, r->bytes, 8);
	out = put(out, r->copies, 4);
	out = put(out, r->mode, 4);
	put(out, r->flags, 4);
}

int soda_wire_get_move_reserve(const void *bytes_in, size_t bytes, struct soda_wire_move_reserve *r,
			       const char **name_p, size_t *name_bytes_p)
{
	const uint8_t *in = bytes_in;

	if (bytes < SODA_WIRE_MOVE_RESERVE_BYTES)
		return -EPROTO;
	r->bytes = get(&in, 8);
	r->copies = (uint32_t)get(&in, 4);
	r->mode = (uint32_t)get(&in, 4);
	r->flags = (uint32_t)get(&in, 4);
	*name_p = (const char *)in;
	*name_bytes_p = bytes - SODA_WIRE_MOVE_RESERVE_BYTES;
	return 0;
}

void soda_wire_put_move_post(uint8_t *out, const struct soda_wire_move_post *p)
{
	out = put(out, p->ticket, 8);
	out = put(out, p->buffer, 4);
	put(out, p->pieces, 4);
}

void soda_wire_get_move_head(const uint8_t *in, struct soda_wire_move_post *p)
{
	p->ticket = get(&in, 8);
	p->buffer = (uint32_t)get(&in, 4);
	p->pieces = (uint32_t)get(&in, 4);
}

int soda_wire_get_move_post(const void *in, size_t bytes, struct soda_wire_move_post *p)
{
	if (bytes < SODA_WIRE_MOVE_POST_BYTES)
		return -EPROTO;
	soda_wire_get_move_head(in, p);
	/* 64 bits: a count of 2^32 - 1 does not overflow */
	return bytes - SODA_WIRE_MOVE_POST_BYTES == (uint64_t)p->pieces * SODA_WIRE_PIECE_BYTES
		       ? 0
		       : -EPROTO;
}

void soda_wire_put_move_range(uint8_t *out, const struct soda_wire_move_range *r)
{
	out = put(out, r->region, 4);
	out = put(out, r->copies, 4);
	out = put(out, r->at, 8);
	put(out, r->bytes, 8);
}

int soda_wire_get_move_range(const void *bytes_in, size_t bytes, struct soda_wire_move_range *r)
{
	const uint8_t *in = bytes_in;

	if (bytes != SODA_WIRE_MOVE_RANGE_BYTES)
		return -EPROTO;
	r->region = (uint32_t)get(&in, 4);
	r->copies = (uint32_t)get(&in, 4);
	r->at = get(&in, 8);
	r->bytes = get(&in, 8);
	return 0;
}

void soda_wire_put_move_part(uint8_t *out, const struct soda_wire_move_part *p)
{
	out = put(out, p->ticket, 8);
	out = put(out, p->to, 8);
	put(out, p->timeout_ms, 4);
}

int soda_wire_get_move_part(const void *bytes_in, size_t bytes, struct soda_wire_move_part *p)
{
	const uint8_t *in = bytes_in;

	if (bytes != SODA_WIRE_MOVE_PART_BYTES)
		return -EPROTO;
	p->ticket = get(&in, 8);
	p->to = get(&in, 8);
	p->timeout_ms = (uint32_t)get(&in, 4);
	return 0;
}

void soda_wire_put_piece(uint8_t *out, const struct soda_wire_piece *p)
{
	out = put(out, p->from, 8);
	out = put(out, p->bytes, 8);
	out = put(out, p->stride, 8);
	out = put(out, p->count, 8);
	out = put(out, p->offset, 8);
	put(out, p->fill, 4);
}

void soda_wire_get_piece(const uint8_t *in, struct soda_wire_piece *p)
{
	p->from = get(&in, 8);
	p->bytes = get(&in, 8);
	p->stride = get(&in, 8);
	p->count = get(&in, 8);
	p->offset = get(&in, 8);
	p->fill = (uint32_t)get(&in, 4);
}

void soda_wire_put_move_put(uint8_t *out, const struct soda_wire_move_put *p)
{
	out = put(out, p->ticket, 8);
	put(out, p->at, 8);
}

int soda_wire_get_move_put(const void *bytes_in, size_t bytes, struct soda_wire_move_put *p)
{
	const uint8_t *in = bytes_in;

	if (bytes <= SODA_WIRE_MOVE_PUT_BYTES ||
	    bytes > SODA_WIRE_MOVE_PUT_BYTES + SODA_MOVE_PUT_MAX)
		return -EPROTO;
	p->ticket = get(&in, 8);
	p->at = get(&in, 8);
	return 0;
}

void soda_wire_put_move_send(uint8_t *out, const struct soda_wire_move_send *s)
{
	out = put(out, s->ticket, 8);
	out = put(out, s->at, 8);
	out = put(out, s->buffer, 4);
	put(out, s->pieces, 4);
}

int soda_wire_get_move_send(const uint8_t *in, struct soda_wire_move_send *s)
{
	s->ticket = get(&in, 8);
	s->at = get(&in, 8);
	s->buffer = (uint32_t)get(&in, 4);
	s->pieces = (uint32_t)get(&in, 4);
	return s->pieces <= SODA_MOVE_LIST_MAX ? 0 : -EPROTO;
}

void soda_wire_put_notice(uint8_t *out, const struct soda_wire_notice *n)
{
	out = put(out, n->ticket, 8);
	out = put(out, n->step, 8);
	put(out, n->status, 4);
}

void soda_wire_get_notice(const uint8_t *in, struct soda_wire_notice *n)
{
	n->ticket = get(&in, 8);
	n->step = get(&in, 8);
	n->status = (uint32_t)get(&in, 4);
}

void soda_wire_put_move_opened(uint8_t *out, const struct soda_wire_move_opened *o)
{
	out = put(out, o->bytes, 8);
	out = put(out, o->copies, 4);
	put(out, o->shared, 4);
}

int soda_wire_get_move_opened(const void *bytes_in, size_t bytes, struct soda_wire_move_opened *o)
{
	const uint8_t *in = bytes_in;

	if (bytes != SODA_WIRE_MOVE_OPENED_BYTES)
		return -EPROTO;
	o->bytes = get(&in, 8);
	o->copies = (uint32_t)get(&in, 4);
	o->shared = (uint32_t)get(&in, 4);
	return 0;
}

void soda_wire_put_move_next(uint8_t *out, const struct soda_wire_move_next *n)
{
	out = put(out, n->after, 8);
	put(out, n->timeout_ms, 4);
}

int soda_wire_get_move_next(const void *bytes_in, size_t bytes, struct soda_wire_move_next *n)
{
	const uint8_t *in = bytes_in;

	if (bytes != SODA_WIRE_MOVE_NEXT_BYTES)
		return -EPROTO;
	n->after = get(&in, 8);
	n->timeout_ms = (uint32_t)get(&in, 4);
	return 0;
}

void soda_wire_put_move_found(uint8_t *out, const struct soda_wire_move_found *f)
{
	out = put(out, f->step, 8);
	out = put(out, f->copy, 4);
	put(out, f->ended, 4);
}

int soda_wire_get_move_found(const void *bytes_in, size_t bytes, struct soda_wire_move_found *f)
{
	const uint8_t *in = bytes_in;

	if (bytes != SODA_WIRE_MOVE_FOUND_BYTES)
		return -EPROTO;
	f->step = get(&in, 8);
	f->copy = (uint32_t)get(&in, 4);
	f->ended = (uint32_t)get(&in, 4);
	return 0;
}

void soda_wire_put_move_read(uint8_t *out, const struct soda_wire_move_read *r)
{
	out = put(out, r->step, 8);
	out = put(out, r->offset, 8);
	put(out, r->bytes, 4);
}

int soda_wire_get_move_read(const void *bytes_in, size_t bytes, struct soda_wire_move_read *r)
{
	const uint8_t *in = bytes_in;

	if (bytes != SODA_WIRE_MOVE_READ_BYTES)
		return -EPROTO;
	r->step = get(&in, 8);
	r->offset = get(&in, 8);
	r->bytes = (uint32_t)get(&in, 4);
	return 0;
}

/* Lists of pieces */

/* Where a piece lies in the destination. */
struct extent {
	uint64_t offset, end;
};

static int compare_extents(const void *a, const void *b)
{
	uint64_t x = ((const struct extent *)a)->offset, y = ((const struct extent *)b)->offset;

	return x < y ? -1 : x > y;
}

/* Extents of n pieces in the order of their offsets. Their sizes are known not to overflow. */
static void sort_extents(const struct soda_wire_piece *pieces, size_t n, struct extent *extents)
{
	for (size_t i = 0; i < n; i++)
		extents[i] =
			(struct extent){ pieces[i].offset,
					 pieces[i].offset + pieces[i].bytes * pieces[i].count };
	qsort(extents, n, sizeof(*extents), compare_extents);
}

/* Whether the last element of a copied piece ends within 64 bits of addresses. */
static bool is_addressable(const struct soda_wire_piece *p)
{
	uint64_t last, end;

	return !__builtin_mul_overflow(p->count - 1, p->stride, &last) &&
	       !__builtin_add_overflow(last, p->bytes, &end) &&
	       !__builtin_add_overflow(end, p->from, &end);
}

static int check_piece(const struct soda_wire_piece *p, uint64_t dest_bytes, const char **what_p)
{
	uint64_t bytes, end;

	*what_p = "a piece has no bytes";
	if (!p->bytes || !p->count)
		return -EINVAL;
	*what_p = "the fill of a piece is no byte";
	if (p->fill >= SODA_WIRE_PIECE_AREA + SODA_MOVE_AREAS)
		return -EINVAL;
	*what_p = "the size of a piece overflows";
	if (__builtin_mul_overflow(p->bytes, p->count, &bytes) ||
	    __builtin_add_overflow(bytes, p->offset, &end))
		return -EINVAL;
	*what_p = "the addresses of a piece overflow";
	if (soda_wire_piece_copies(p) && !is_addressable(p))
		return -EINVAL;
	*what_p = "a piece ends behind the buffer";
	return end > dest_bytes ? -EFBIG : 0;
}

int soda_wire_pieces_check(const struct soda_wire_piece *pieces, size_t n, uint64_t dest_bytes,
			   uint64_t *copied_p, const char **what_p)
{
	struct extent extents[SODA_MOVE_LIST_MAX];
	uint64_t copied = 0;

	*what_p = n ? "there are too many pieces" : "there are no pieces";
	if (!n || n > SODA_MOVE_LIST_MAX)
		return n ? -E2BIG : -EINVAL;
	for (size_t i = 0; i < n; i++) {
		int ret = check_piece(&pieces[i], dest_bytes, what_p);

		if (ret < 0)
			return ret;
	}
	sort_extents(pieces, n, extents);
	*what_p = "two pieces overlap in the buffer";
	for (size_t i = 1; i < n; i++)
		if (extents[i].offset < extents[i - 1].end)
			return -EINVAL;
	/* no sum overflows: together they are no longer than the destination */
	for (size_t i = 0; i < n; i++)
		if (soda_wire_piece_copies(&pieces[i]))
			copied += pieces[i].bytes * pieces[i].count;
	*copied_p = copied;
	return 0;
}

void soda_wire_pieces_set(const struct soda_wire_piece *pieces, size_t n, void *dest,
			  uint64_t dest_bytes)
{
	struct extent extents[SODA_MOVE_LIST_MAX];
	uint64_t at = 0;

	sort_extents(pieces, n, extents);
	for (size_t i = 0; i < n; i++) {
		memset((uint8_t *)dest + at, 0, extents[i].offset - at);
		at = extents[i].end;
	}
	memset((uint8_t *)dest + at, 0, dest_bytes - at);
	for (size_t i = 0; i < n; i++)
		if (!soda_wire_piece_copies(&pieces[i]))
			memset((uint8_t *)dest + pieces[i].offset, (int)pieces[i].fill,
			       pieces[i].bytes * pieces[i].count);
}

/* Elements without gaps between them are one. */
static uint64_t element_bytes(const struct soda_wire_piece *p)
{
	return p->stride == p->bytes ? p->bytes * p->count : p->bytes;
}

bool soda_piece_walk_next(struct soda_piece_walk *w, uint64_t max, struct soda_piece_span *span_p)
{
	const struct soda_wire_piece *p;
	uint64_t each, left;

	while (w->piece < w->n && !soda_wire_piece_copies(&w->pieces[w->piece]))
		w->piece++;
	if (w->piece == w->n)
		return false;
	p = &w->pieces[w->piece];
	each = element_bytes(p);
	left = each - w->within;
	*span_p = (struct soda_piece_span){ p->from + w->element * p->stride + w->within,
					    p->offset + w->element * p->bytes + w->within,
					    left < max ? left : max, w->piece };
	w->within += span_p->bytes;
	if (w->within < each)
		return true;
	w->within = 0;
	if (++w->element * each == p->bytes * p->count) {
		w->element = 0;
		w->piece++;
	}
	return true;
}
