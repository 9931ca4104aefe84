/* SPDX-License-Identifier: BSD-3-Clause */
#include "pool/erasure.h"

#ifdef SODA_HAVE_ISAL

#include <isa-l/erasure_code.h>
#include <string.h>

enum { DATA = SODA_ERASURE_DATA_MAX, PARITY = SODA_ERASURE_PARITY_MAX, EXPANDED = 32 };

/* By k: the whole matrix, and what ISA-L makes of each row of parity. */
static unsigned char matrix[DATA + 1][(DATA + PARITY) * DATA];
static unsigned char rows[DATA + 1][PARITY][EXPANDED * DATA];

bool soda_erasure_built(void)
{
	return true;
}

void soda_erasure_start(void)
{
	for (int k = 1; k <= DATA; k++) {
		gf_gen_cauchy1_matrix(matrix[k], k + PARITY, k);
		for (int j = 0; j < PARITY; j++)
			ec_init_tables(k, 1, matrix[k] + (k + j) * k, rows[k][j]);
	}
}

void soda_erasure_encode_from(uint32_t k, uint32_t j, uint32_t piece_bytes,
			      const void *const data[], void *to)
{
	unsigned char *from[DATA], *parity = to;

	for (uint32_t i = 0; i < k; i++)
		from[i] = (unsigned char *)(uintptr_t)data[i];
	ec_encode_data((int)piece_bytes, (int)k, 1, rows[k][j], from, &parity);
}

void soda_erasure_encode(uint32_t k, uint32_t j, uint32_t piece_bytes, const void *stripe, void *to)
{
	const void *data[DATA];

	for (uint32_t i = 0; i < k; i++)
		data[i] = (const char *)stripe + (uint64_t)i * piece_bytes;
	soda_erasure_encode_from(k, j, piece_bytes, data, to);
}

bool soda_erasure_decode(uint32_t k, uint32_t have, uint32_t piece_bytes, void *stripe)
{
	unsigned char part[DATA * DATA], inverse[DATA * DATA], row[EXPANDED * DATA];
	unsigned char *from[DATA], *to;
	uint32_t n = 0;

	if (!(~have & ((1u << k) - 1)))
		return true;
	for (uint32_t i = 0; i < k + PARITY && n < k; i++) {
		if (!(have >> i & 1))
			continue;
		memcpy(part + n * k, matrix[k] + i * k, k);
		from[n++] = (unsigned char *)stripe + (uint64_t)i * piece_bytes;
	}
	if (n < k || gf_invert_matrix(part, inverse, (int)k))
		return false;
	for (uint32_t i = 0; i < k; i++) {
		if (have >> i & 1)
			continue;
		to = (unsigned char *)stripe + (uint64_t)i * piece_bytes;
		ec_init_tables((int)k, 1, inverse + i * k, row);
		ec_encode_data((int)piece_bytes, (int)k, 1, row, from, &to);
	}
	return true;
}

#else

bool soda_erasure_built(void)
{
	return false;
}

void soda_erasure_start(void)
{
}

void soda_erasure_encode(uint32_t k, uint32_t j, uint32_t piece_bytes, const void *stripe, void *to)
{
}

void soda_erasure_encode_from(uint32_t k, uint32_t j, uint32_t piece_bytes,
			      const void *const data[], void *to)
{
}

bool soda_erasure_decode(uint32_t k, uint32_t have, uint32_t piece_bytes, void *stripe)
{
	return !(~have & ((1u << k) - 1));
}

#endif
