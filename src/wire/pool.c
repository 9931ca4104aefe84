/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/pool.h"

#include <errno.h>
#include <string.h>

#include "wire/field.h"
#include "wire/proof.h"

bool soda_wire_domain_ok(const char *name)
{
	return soda_wire_server_ok(name);
}

void soda_wire_put_tell(uint8_t out[SODA_WIRE_TELL_BYTES], const struct soda_wire_tell *t)
{
	soda_wire_put_u64(out, t->program);
	soda_wire_put_u32(out + 8, t->members);
	soda_wire_put_u32(out + 12, t->slabs);
	soda_wire_put_u32(out + 16, t->missing);
	soda_wire_put_u32(out + 20, t->here);
	soda_wire_put_u64(out + 24, t->expelled);
	soda_wire_put_u64(out + 32, t->rebuilt);
	soda_wire_put_u64(out + 40, t->moved);
	soda_wire_put_u64(out + 48, t->rebuilt_bytes);
	soda_wire_put_u32(out + 56, t->ask);
	soda_wire_put_u32(out + 60, t->held);
}

int soda_wire_get_tell(const void *in, size_t bytes, struct soda_wire_tell *t)
{
	const uint8_t *at = in;

	if (bytes < SODA_WIRE_TELL_BYTES)
		return -EPROTO;
	*t = (struct soda_wire_tell){
		.program = soda_wire_get_u64(at),
		.members = soda_wire_get_u32(at + 8),
		.slabs = soda_wire_get_u32(at + 12),
		.missing = soda_wire_get_u32(at + 16),
		.here = soda_wire_get_u32(at + 20),
		.expelled = soda_wire_get_u64(at + 24),
		.rebuilt = soda_wire_get_u64(at + 32),
		.moved = soda_wire_get_u64(at + 40),
		.rebuilt_bytes = soda_wire_get_u64(at + 48),
		.ask = soda_wire_get_u32(at + 56),
		.held = soda_wire_get_u32(at + 60),
	};
	return t->ask > SODA_WIRE_POOL_MEMBERS ? -EPROTO : 0;
}

void soda_wire_put_member(uint8_t out[SODA_WIRE_MEMBER_BYTES], const struct soda_wire_member *m)
{
	memset(out, 0, SODA_WIRE_MEMBER_BYTES);
	soda_wire_put_u64(out, m->capacity);
	soda_wire_put_u64(out + 8, m->free_bytes);
	soda_wire_put_u32(out + 16, m->flags);
	memcpy(out + 20, m->domain, strlen(m->domain));
}

int soda_wire_get_member(const void *in, size_t bytes, struct soda_wire_member *m)
{
	const uint8_t *at = in;

	if (bytes < SODA_WIRE_MEMBER_BYTES || at[SODA_WIRE_MEMBER_BYTES - 1])
		return -EPROTO;
	m->capacity = soda_wire_get_u64(at);
	m->free_bytes = soda_wire_get_u64(at + 8);
	m->flags = soda_wire_get_u32(at + 16);
	memcpy(m->domain, at + 20, sizeof(m->domain));
	return m->domain[0] && !soda_wire_domain_ok(m->domain) ? -EPROTO : 0;
}

void soda_wire_put_content(uint8_t out[SODA_WIRE_CONTENT_BYTES], const struct soda_wire_content *c)
{
	soda_wire_put_u32(out, c->state);
	soda_wire_put_u32(out + 4, c->kind);
	soda_wire_put_u64(out + 8, c->file_bytes);
	memcpy(out + 16, c->hash, sizeof(c->hash));
}

int soda_wire_get_content(const void *in, size_t bytes, struct soda_wire_content *c)
{
	const uint8_t *at = in;

	if (bytes < SODA_WIRE_CONTENT_BYTES)
		return -EPROTO;
	*c = (struct soda_wire_content){
		.state = soda_wire_get_u32(at),
		.kind = soda_wire_get_u32(at + 4),
		.file_bytes = soda_wire_get_u64(at + 8),
	};
	memcpy(c->hash, at + 16, sizeof(c->hash));
	if (c->state != SODA_WIRE_CONTENT_KNOWN && c->state != SODA_WIRE_CONTENT_COMPUTING)
		return -EPROTO;
	return c->kind == SODA_WIRE_CONTENT_SHA256 ? 0 : -EPROTO;
}
