/* SPDX-License-Identifier: BSD-3-Clause */
/* Integers as they travel: little-endian, at any address. */
#ifndef SODA_FIELD_H
#define SODA_FIELD_H

#include <stdint.h>

static inline void soda_wire_put(uint8_t *out, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		out[i] = (uint8_t)(value >> (8 * i));
}

static inline uint64_t soda_wire_get(const uint8_t *in, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes; i++)
		value |= (uint64_t)in[i] << (8 * i);
	return value;
}

static inline void soda_wire_put_u32(uint8_t *out, uint32_t value)
{
	soda_wire_put(out, value, 4);
}

static inline uint32_t soda_wire_get_u32(const uint8_t *in)
{
	return (uint32_t)soda_wire_get(in, 4);
}

static inline void soda_wire_put_u64(uint8_t *out, uint64_t value)
{
	soda_wire_put(out, value, 8);
}

static inline uint64_t soda_wire_get_u64(const uint8_t *in)
{
	return soda_wire_get(in, 8);
}

#endif
