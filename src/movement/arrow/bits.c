/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "movement/arrow/plan.h"

/* Bits `from` to from + n - 1, 1 to 8 of them, as a byte; no byte without one of them is read. */
static uint8_t get_bits(const uint8_t *bits, uint64_t from, uint64_t n)
{
	unsigned shift = from % 8;
	unsigned value = bits[from / 8] >> shift;

	if (shift + n > 8)
		value |= (unsigned)bits[from / 8 + 1] << (8 - shift);
	return (uint8_t)(value & ((1u << n) - 1));
}

uint64_t soda_arrow_bits_zero(const uint8_t *bits, uint64_t from, uint64_t n)
{
	uint64_t ones = 0, left = n, part, word;

	while (left) {
		if (from % 8 == 0 && left >= 64) {
			memcpy(&word, bits + from / 8, sizeof(word));
			part = 64;
		} else {
			part = 8 - from % 8; /* up to the end of the byte */
			part = part < left ? part : left;
			word = get_bits(bits, from, part);
		}
		ones += (unsigned)__builtin_popcountll(word);
		from += part;
		left -= part;
	}
	return n - ones;
}

void soda_arrow_bits_copy(uint8_t *to, const uint8_t *bits, uint64_t from, uint64_t n)
{
	for (; n >= 8; n -= 8, from += 8)
		*to++ = get_bits(bits, from, 8);
	if (n)
		*to = get_bits(bits, from, n);
}
