/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Layouts of wire.h, byte by byte: the same on every processor, and no struct
 * is ever copied to or from the network.
 */
#include "wire/wire.h"

#include <errno.h>
#include <string.h>

#include "wire/field.h"

static const int errno_of_status[SODA_ST_MAX + 1] = {
	[SODA_ST_OK] = 0,
	[SODA_ST_INVALID] = EINVAL,
	[SODA_ST_NOSPC] = ENOSPC,
	[SODA_ST_NOENT] = ENOENT,
	[SODA_ST_ACCES] = EACCES,
	[SODA_ST_BUSY] = EBUSY,
	[SODA_ST_FBIG] = EFBIG,
	[SODA_ST_IO] = EIO,
	[SODA_ST_PROTO] = EPROTO,
	[SODA_ST_VERSION] = EPROTONOSUPPORT,
	[SODA_ST_STALE] = ESTALE,
	[SODA_ST_SHUTDOWN] = ESHUTDOWN,
	[SODA_ST_DQUOT] = EDQUOT,
	[SODA_ST_NOMEM] = ENOMEM,
	[SODA_ST_NOTSUP] = ENOTSUP,
	[SODA_ST_PERM] = EPERM,
	[SODA_ST_EXIST] = EEXIST,
	[SODA_ST_FAULT] = EFAULT,
	[SODA_ST_CANCELED] = ECANCELED,
	[SODA_ST_PIPE] = EPIPE,
	[SODA_ST_TOOBIG] = E2BIG,
};

int soda_status_to_errno(unsigned status)
{
	return status <= SODA_ST_MAX ? errno_of_status[status] : EPROTO;
}

unsigned soda_status_from_errno(int err)
{
	for (unsigned status = 0; status <= SODA_ST_MAX; status++)
		if (errno_of_status[status] == err)
			return status;
	return SODA_ST_IO;
}

void soda_wire_put_frame(uint8_t out[SODA_WIRE_FRAME_BYTES], const struct soda_wire_frame *f)
{
	soda_wire_put(out, f->type, 1);
	soda_wire_put(out + 1, f->flags, 1);
	soda_wire_put(out + 2, f->status, 2);
	soda_wire_put(out + 4, f->length, 4);
}

void soda_wire_get_frame(const uint8_t in[SODA_WIRE_FRAME_BYTES], struct soda_wire_frame *f)
{
	f->type = in[0];
	f->flags = in[1];
	f->status = (uint16_t)soda_wire_get(in + 2, 2);
	f->length = (uint32_t)soda_wire_get(in + 4, 4);
}

void soda_wire_put_flow_end(uint8_t out[SODA_WIRE_FLOW_END_BYTES], unsigned status)
{
	memset(out, 0, SODA_WIRE_FLOW_END_BYTES);
	soda_wire_put_u32(out, status);
}

int soda_wire_get_flow_end(const uint8_t in[SODA_WIRE_FLOW_END_BYTES], unsigned *status_p)
{
	unsigned status = soda_wire_get_u32(in);

	if (status != SODA_ST_OK && status != SODA_ST_FAULT)
		return -EPROTO;
	*status_p = status;
	return 0;
}

void soda_wire_put_flow(uint8_t *out, const struct soda_wire_flow *f)
{
	soda_wire_put(out, f->parts, 4);
	soda_wire_put(out + 4, f->status, 4);
	soda_wire_put(out + 8, f->bytes, 8);
}

void soda_wire_put_flow_part(uint8_t *out, const struct soda_wire_flow_part *p)
{
	soda_wire_put(out, p->at, 8);
	soda_wire_put(out + 8, p->bytes, 4);
	soda_wire_put(out + 12, p->rkey, 4);
}

/* How many bytes the parts have; 0: one has none, or ends behind all addresses. */
static uint64_t get_parts(const uint8_t *in, uint32_t n, struct soda_wire_flow_part *parts)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n; i++, in += SODA_WIRE_FLOW_PART_BYTES) {
		parts[i] = (struct soda_wire_flow_part){ soda_wire_get(in, 8),
							 (uint32_t)soda_wire_get(in + 8, 4),
							 (uint32_t)soda_wire_get(in + 12, 4) };
		if (!parts[i].bytes || parts[i].at > UINT64_MAX - parts[i].bytes)
			return 0;
		sum += parts[i].bytes;
	}
	return sum;
}

int soda_wire_get_flow(const uint8_t *in, size_t bytes, struct soda_wire_flow *f,
		       struct soda_wire_flow_part parts[SODA_WIRE_FLOW_PARTS], size_t *body_p)
{
	uint64_t sum;

	if (bytes < SODA_WIRE_FLOW_BYTES)
		return -EPROTO;
	f->parts = (uint32_t)soda_wire_get(in, 4);
	f->status = (uint32_t)soda_wire_get(in + 4, 4);
	f->bytes = soda_wire_get(in + 8, 8);
	if (f->parts > SODA_WIRE_FLOW_PARTS ||
	    bytes - SODA_WIRE_FLOW_BYTES < f->parts * SODA_WIRE_FLOW_PART_BYTES)
		return -EPROTO;
	*body_p = SODA_WIRE_FLOW_BYTES + f->parts * SODA_WIRE_FLOW_PART_BYTES;
	if (!f->bytes || f->bytes > SODA_WIRE_MAX_STREAM - (bytes - *body_p))
		return -EPROTO;
	sum = get_parts(in + SODA_WIRE_FLOW_BYTES, f->parts, parts);
	if (f->status == SODA_ST_FAULT)
		return f->parts ? -EPROTO : 0;
	return f->status == SODA_ST_OK && sum == f->bytes ? 0 : -EPROTO;
}

void soda_wire_put_read(uint8_t out[SODA_WIRE_READ_BYTES], const struct soda_wire_read *r)
{
	soda_wire_put(out, r->region_id, 2);
	soda_wire_put(out + 2, r->page_offset, 6);
	soda_wire_put(out + 8, r->dest_addr, 8);
	soda_wire_put(out + 16, r->size, 4);
	soda_wire_put(out + 20, r->dest_rkey, 4);
}

void soda_wire_get_read(const uint8_t in[SODA_WIRE_READ_BYTES], struct soda_wire_read *r)
{
	r->region_id = (uint16_t)soda_wire_get(in, 2);
	r->page_offset = soda_wire_get(in + 2, 6);
	r->dest_addr = soda_wire_get(in + 8, 8);
	r->size = (uint32_t)soda_wire_get(in + 16, 4);
	r->dest_rkey = (uint32_t)soda_wire_get(in + 20, 4);
}

void soda_wire_put_residency(uint8_t out[SODA_WIRE_RESIDENCY_BYTES],
			     const struct soda_wire_residency *h)
{
	soda_wire_put(out, h->after, 8);
	soda_wire_put(out + 8, h->before, 8);
}

void soda_wire_get_residency(const uint8_t in[SODA_WIRE_RESIDENCY_BYTES],
			     struct soda_wire_residency *h)
{
	h->after = soda_wire_get(in, 8);
	h->before = soda_wire_get(in + 8, 8);
}

void soda_wire_put_write(uint8_t out[SODA_WIRE_WRITE_BYTES], const struct soda_wire_write *w)
{
	soda_wire_put(out, w->region_id, 2);
	soda_wire_put(out + 2, w->page_offset, 6);
	soda_wire_put(out + 8, w->size, 4);
}

void soda_wire_get_write(const uint8_t in[SODA_WIRE_WRITE_BYTES], struct soda_wire_write *w)
{
	w->region_id = (uint16_t)soda_wire_get(in, 2);
	w->page_offset = soda_wire_get(in + 2, 6);
	w->size = (uint32_t)soda_wire_get(in + 8, 4);
}

void soda_wire_put_origin(uint8_t out[SODA_WIRE_ORIGIN_BYTES], const struct soda_wire_origin *o)
{
	soda_wire_put_u64(out, o->client_id);
	soda_wire_put_u64(out + 8, o->secret);
	soda_wire_put(out + 16, o->region_id, 2);
}

void soda_wire_get_origin(const uint8_t in[SODA_WIRE_ORIGIN_BYTES], struct soda_wire_origin *o)
{
	o->client_id = soda_wire_get_u64(in);
	o->secret = soda_wire_get_u64(in + 8);
	o->region_id = (uint16_t)soda_wire_get(in + 16, 2);
}

uint32_t soda_wire_put_code(uint8_t out[SODA_WIRE_CODE_BYTES_MAX], const struct soda_wire_code *c)
{
	uint8_t *at = out + SODA_WIRE_CODE_HEAD_BYTES;

	soda_wire_put(out, c->data_n, 1);
	soda_wire_put(out + 1, c->parity, 1);
	soda_wire_put(out + 2, c->last, 1);
	soda_wire_put(out + 3, 0, 1);
	for (uint32_t i = 0; i < c->data_n; i++, at += SODA_WIRE_ORIGIN_BYTES)
		soda_wire_put_origin(at, &c->from[i]);
	return (uint32_t)(at - out);
}

bool soda_wire_get_code(const uint8_t *in, uint32_t bytes, struct soda_wire_code *c)
{
	if (bytes < SODA_WIRE_CODE_HEAD_BYTES)
		return false;
	*c = (struct soda_wire_code){ .data_n = in[0], .parity = in[1], .last = in[2] };
	if (!c->data_n || c->data_n > SODA_WIRE_CODE_DATA_MAX ||
	    c->parity >= SODA_WIRE_CODE_PARITY_MAX || in[2] > 1 || in[3] ||
	    bytes != SODA_WIRE_CODE_HEAD_BYTES + c->data_n * SODA_WIRE_ORIGIN_BYTES)
		return false;
	in += SODA_WIRE_CODE_HEAD_BYTES;
	for (uint32_t i = 0; i < c->data_n; i++, in += SODA_WIRE_ORIGIN_BYTES)
		soda_wire_get_origin(in, &c->from[i]);
	return true;
}

void soda_wire_put_hello(uint8_t out[SODA_WIRE_HELLO_BYTES], const struct soda_wire_hello *h)
{
	soda_wire_put(out, h->magic, 4);
	soda_wire_put(out + 4, h->version, 4);
	soda_wire_put(out + 8, h->kind, 4);
	soda_wire_put(out + 12, h->features, 4);
	soda_wire_put(out + 16, h->chunk_bytes, 4);
	soda_wire_put(out + 20, h->uid, 4);
	soda_wire_put(out + 24, h->gid, 4);
	soda_wire_put(out + 28, h->pid, 4);
	soda_wire_put(out + 32, h->client_id, 8);
	soda_wire_put(out + 40, h->secret, 8);
	soda_wire_put(out + 48, h->epoch, 8);
}

int soda_wire_get_hello(const void *bytes_in, size_t bytes, struct soda_wire_hello *h)
{
	const uint8_t *in = bytes_in;

	if (bytes != SODA_WIRE_HELLO_BYTES)
		return -EPROTO;
	h->magic = (uint32_t)soda_wire_get(in, 4);
	h->version = (uint32_t)soda_wire_get(in + 4, 4);
	h->kind = (uint32_t)soda_wire_get(in + 8, 4);
	h->features = (uint32_t)soda_wire_get(in + 12, 4);
	h->chunk_bytes = (uint32_t)soda_wire_get(in + 16, 4);
	h->uid = (uint32_t)soda_wire_get(in + 20, 4);
	h->gid = (uint32_t)soda_wire_get(in + 24, 4);
	h->pid = (uint32_t)soda_wire_get(in + 28, 4);
	h->client_id = soda_wire_get(in + 32, 8);
	h->secret = soda_wire_get(in + 40, 8);
	h->epoch = soda_wire_get(in + 48, 8);
	return 0;
}

void soda_wire_put_welcome(uint8_t out[SODA_WIRE_WELCOME_BYTES], const struct soda_wire_welcome *w)
{
	soda_wire_put(out, w->version, 4);
	soda_wire_put(out + 4, w->max_data, 4);
	soda_wire_put(out + 8, w->instance_id, 8);
	soda_wire_put(out + 16, w->client_id, 8);
	soda_wire_put(out + 24, w->secret, 8);
	soda_wire_put(out + 32, w->capacity, 8);
	soda_wire_put(out + 40, w->free_bytes, 8);
	soda_wire_put(out + 48, w->known, 4);
	soda_wire_put(out + 52, w->agent, 4);
}

int soda_wire_get_welcome(const void *bytes_in, size_t bytes, struct soda_wire_welcome *w)
{
	const uint8_t *in = bytes_in;

	if (bytes != SODA_WIRE_WELCOME_BYTES)
		return -EPROTO;
	w->version = (uint32_t)soda_wire_get(in, 4);
	w->max_data = (uint32_t)soda_wire_get(in + 4, 4);
	w->instance_id = soda_wire_get(in + 8, 8);
	w->client_id = soda_wire_get(in + 16, 8);
	w->secret = soda_wire_get(in + 24, 8);
	w->capacity = soda_wire_get(in + 32, 8);
	w->free_bytes = soda_wire_get(in + 40, 8);
	w->known = (uint32_t)soda_wire_get(in + 48, 4);
	w->agent = (uint32_t)soda_wire_get(in + 52, 4);
	return 0;
}

void soda_wire_put_open(uint8_t out[SODA_WIRE_OPEN_BYTES], const struct soda_wire_open *o)
{
	soda_wire_put(out, o->region_id, 2);
	soda_wire_put(out + 2, o->name_bytes, 2);
	soda_wire_put(out + 4, o->flags, 4);
	soda_wire_put(out + 8, o->bytes, 8);
}

size_t soda_wire_put_marked_open(uint8_t out[SODA_WIRE_OPEN_MARKED_BYTES],
				 const struct soda_wire_open *o)
{
	soda_wire_put_open(out, o);
	if (!o->mark)
		return SODA_WIRE_OPEN_BYTES;
	soda_wire_put(out + SODA_WIRE_OPEN_BYTES, o->mark, 8);
	soda_wire_put(out + SODA_WIRE_OPEN_BYTES + 8, o->again, 8);
	return SODA_WIRE_OPEN_MARKED_BYTES;
}

int soda_wire_get_open(const void *bytes_in, size_t bytes, struct soda_wire_open *o,
		       const char **name_p)
{
	const uint8_t *in = bytes_in;
	size_t head = SODA_WIRE_OPEN_BYTES;
	uint16_t name_bytes;

	if (bytes < SODA_WIRE_OPEN_BYTES)
		return -EPROTO;
	name_bytes = (uint16_t)soda_wire_get(in + 2, 2);
	if (bytes == SODA_WIRE_OPEN_MARKED_BYTES + (size_t)name_bytes)
		head = SODA_WIRE_OPEN_MARKED_BYTES;
	if (name_bytes > SODA_WIRE_MAX_NAME || bytes != head + name_bytes)
		return -EPROTO;
	o->mark = head > SODA_WIRE_OPEN_BYTES ? soda_wire_get(in + SODA_WIRE_OPEN_BYTES, 8) : 0;
	o->again = o->mark && soda_wire_get(in + SODA_WIRE_OPEN_BYTES + 8, 8) ? 1 : 0;
	o->region_id = (uint16_t)soda_wire_get(in, 2);
	o->name_bytes = name_bytes;
	o->flags = (uint32_t)soda_wire_get(in + 4, 4);
	o->bytes = soda_wire_get(in + 8, 8);
	*name_p = (const char *)in + head;
	return 0;
}

void soda_wire_put_opened(uint8_t out[SODA_WIRE_OPENED_BYTES], const struct soda_wire_opened *o)
{
	soda_wire_put(out, o->bytes, 8);
	soda_wire_put(out + 8, o->file_id, 8);
	soda_wire_put(out + 16, o->generation, 8);
}

int soda_wire_get_opened(const void *bytes_in, size_t bytes, struct soda_wire_opened *o)
{
	const uint8_t *in = bytes_in;

	if (bytes != SODA_WIRE_OPENED_BYTES)
		return -EPROTO;
	o->bytes = soda_wire_get(in, 8);
	o->file_id = soda_wire_get(in + 8, 8);
	o->generation = soda_wire_get(in + 16, 8);
	return 0;
}

void soda_wire_put_advise(uint8_t out[SODA_WIRE_ADVISE_BYTES], const struct soda_wire_advise *a)
{
	soda_wire_put(out, a->region_id, 2);
	soda_wire_put(out + 2, a->advice, 2);
	soda_wire_put(out + 4, 0, 4);
	soda_wire_put(out + 8, a->offset, 8);
	soda_wire_put(out + 16, a->bytes, 8);
}

int soda_wire_get_advise(const void *bytes_in, size_t bytes, struct soda_wire_advise *a)
{
	const uint8_t *in = bytes_in;

	if (bytes != SODA_WIRE_ADVISE_BYTES)
		return -EPROTO;
	a->region_id = (uint16_t)soda_wire_get(in, 2);
	a->advice = (uint16_t)soda_wire_get(in + 2, 2);
	a->offset = soda_wire_get(in + 8, 8);
	a->bytes = soda_wire_get(in + 16, 8);
	return 0;
}

void soda_wire_put_advised(uint8_t out[SODA_WIRE_ADVISED_BYTES], const struct soda_wire_advised *a)
{
	soda_wire_put(out, a->offset, 8);
	soda_wire_put(out + 8, a->bytes, 8);
}

int soda_wire_get_advised(const void *bytes_in, size_t bytes, struct soda_wire_advised *a)
{
	const uint8_t *in = bytes_in;

	if (bytes != SODA_WIRE_ADVISED_BYTES)
		return -EPROTO;
	a->offset = soda_wire_get(in, 8);
	a->bytes = soda_wire_get(in + 8, 8);
	return 0;
}

void soda_wire_put_discard(uint8_t out[SODA_WIRE_DISCARD_BYTES], const struct soda_wire_discard *d)
{
	soda_wire_put(out, d->region_id, 2);
	soda_wire_put(out + 2, 0, 6);
	soda_wire_put(out + 8, d->offset, 8);
	soda_wire_put(out + 16, d->bytes, 8);
}

int soda_wire_get_discard(const void *bytes_in, size_t bytes, struct soda_wire_discard *d)
{
	const uint8_t *in = bytes_in;

	if (bytes != SODA_WIRE_DISCARD_BYTES)
		return -EPROTO;
	d->region_id = (uint16_t)soda_wire_get(in, 2);
	d->offset = soda_wire_get(in + 8, 8);
	d->bytes = soda_wire_get(in + 16, 8);
	return 0;
}

void soda_wire_put_written(uint8_t out[SODA_WIRE_WRITTEN_BYTES], const struct soda_wire_written *w)
{
	soda_wire_put(out, w->next, 8);
	soda_wire_put(out + 8, w->oldest, 8);
	soda_wire_put(out + 16, w->lost, 8);
}

int soda_wire_get_written(const void *bytes_in, size_t bytes, struct soda_wire_written *w)
{
	const uint8_t *in = bytes_in;

	if (bytes != SODA_WIRE_WRITTEN_BYTES)
		return -EPROTO;
	w->next = soda_wire_get(in, 8);
	w->oldest = soda_wire_get(in + 8, 8);
	w->lost = soda_wire_get(in + 16, 8);
	return 0;
}

void soda_wire_put_key(uint8_t out[SODA_WIRE_KEY_BYTES], const struct soda_wire_key *k)
{
	soda_wire_put(out, k->rkey, 4);
	soda_wire_put(out + 4, k->dirty_at, 8);
}

int soda_wire_get_key(const void *in, size_t bytes, struct soda_wire_key *k)
{
	if (bytes != SODA_WIRE_KEY_BYTES)
		return -EPROTO;
	k->rkey = (uint32_t)soda_wire_get(in, 4);
	k->dirty_at = soda_wire_get((const uint8_t *)in + 4, 8);
	return 0;
}

void soda_wire_put_two_sided(uint8_t out[SODA_WIRE_TWO_SIDED_BYTES],
			     const struct soda_wire_two_sided *a)
{
	soda_wire_put(out, a->message_bytes, 4);
	soda_wire_put(out + 4, a->credits, 1);
	soda_wire_put(out + 5, a->features, 1);
	soda_wire_put(out + 6, a->answer, 2);
}

int soda_wire_get_two_sided(const void *in, size_t bytes, struct soda_wire_two_sided *a)
{
	const uint8_t *at = in;

	if (bytes != SODA_WIRE_TWO_SIDED_BYTES)
		return -EPROTO;
	a->message_bytes = (uint32_t)soda_wire_get(at, 4);
	a->credits = at[4];
	a->features = at[5];
	a->answer = (uint16_t)soda_wire_get(at + 6, 2);
	if (!a->message_bytes)
		return a->credits || a->features || a->answer ? -EPROTO : 0;
	return a->message_bytes % SODA_WIRE_PAGE || a->message_bytes > SODA_WIRE_MAX_DATA ||
			       !a->credits || a->answer > SODA_ANSWER_SEND
		       ? -EPROTO
		       : 0;
}

void soda_wire_put_listed(uint8_t out[SODA_WIRE_LISTED_BYTES], const struct soda_wire_listed *l)
{
	soda_wire_put(out, l->region_id, 2);
	soda_wire_put(out + 2, 0, 2);
	soda_wire_put(out + 4, l->flags, 4);
	soda_wire_put(out + 8, l->bytes, 8);
	soda_wire_put(out + 16, l->file_id, 8);
	soda_wire_put(out + 24, l->generation, 8);
}

void soda_wire_get_listed(const uint8_t in[SODA_WIRE_LISTED_BYTES], struct soda_wire_listed *l)
{
	l->region_id = (uint16_t)soda_wire_get(in, 2);
	l->flags = (uint32_t)soda_wire_get(in + 4, 4);
	l->bytes = soda_wire_get(in + 8, 8);
	l->file_id = soda_wire_get(in + 16, 8);
	l->generation = soda_wire_get(in + 24, 8);
}

size_t soda_wire_put_store(uint8_t out[SODA_WIRE_STORE_AS_BYTES], const struct soda_wire_store *s)
{
	soda_wire_put(out, s->region_id, 2);
	soda_wire_put(out + 2, s->part, 2);
	if (!s->as.client_id)
		return SODA_WIRE_STORE_BYTES;
	soda_wire_put_origin(out + SODA_WIRE_STORE_BYTES, &s->as);
	return SODA_WIRE_STORE_AS_BYTES;
}

int soda_wire_get_store(const void *bytes_in, size_t bytes, struct soda_wire_store *s)
{
	const uint8_t *in = bytes_in;

	if (bytes != SODA_WIRE_STORE_BYTES && bytes != SODA_WIRE_STORE_AS_BYTES)
		return -EPROTO;
	*s = (struct soda_wire_store){ .region_id = (uint16_t)soda_wire_get(in, 2),
				       .part = (uint16_t)soda_wire_get(in + 2, 2) };
	if (bytes == SODA_WIRE_STORE_BYTES)
		return 0;
	soda_wire_get_origin(in + SODA_WIRE_STORE_BYTES, &s->as);
	return s->as.client_id ? 0 : -EPROTO;
}

void soda_wire_put_stored(uint8_t out[SODA_WIRE_STORED_BYTES], const struct soda_wire_stored *s)
{
	soda_wire_put(out, s->map_bytes, 8);
	soda_wire_put(out + 8, s->chunk_bytes, 4);
	soda_wire_put(out + 12, s->chunks, 4);
	soda_wire_put(out + 16, s->parts, 2);
	soda_wire_put(out + 18, s->member, 2);
}

int soda_wire_get_stored(const void *bytes_in, size_t bytes, struct soda_wire_stored *s)
{
	const uint8_t *in = bytes_in;

	if (bytes != SODA_WIRE_STORED_BYTES)
		return -EPROTO;
	s->map_bytes = soda_wire_get(in, 8);
	s->chunk_bytes = (uint32_t)soda_wire_get(in + 8, 4);
	s->chunks = (uint32_t)soda_wire_get(in + 12, 4);
	s->parts = (uint16_t)soda_wire_get(in + 16, 2);
	s->member = (uint16_t)soda_wire_get(in + 18, 2);
	return 0;
}

int soda_wire_check_range(uint64_t page_offset, uint32_t size, uint64_t region_bytes)
{
	uint64_t region_pages =
		region_bytes / SODA_WIRE_PAGE + (region_bytes % SODA_WIRE_PAGE != 0);

	if (size == 0 || size > SODA_WIRE_MAX_DATA || size % SODA_WIRE_PAGE)
		return -EPROTO;
	if (page_offset > region_pages || size / SODA_WIRE_PAGE > region_pages - page_offset)
		return -EINVAL;
	return 0;
}

int soda_wire_check_discard(const struct soda_wire_discard *d, uint64_t region_bytes)
{
	uint64_t pages = region_bytes / SODA_WIRE_PAGE + (region_bytes % SODA_WIRE_PAGE != 0);
	uint64_t first = d->offset / SODA_WIRE_PAGE, n = d->bytes / SODA_WIRE_PAGE;

	if (d->offset % SODA_WIRE_PAGE || d->bytes % SODA_WIRE_PAGE || !n)
		return -EINVAL;
	return first > pages || n > pages - first ? -EINVAL : 0;
}

bool soda_wire_name_ok(const char *name, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (name[i] <= ' ' || name[i] > '~')
			return false;
	return bytes >= 1 && bytes <= SODA_WIRE_MAX_NAME;
}
