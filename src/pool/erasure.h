/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reed-Solomon codes over GF(2^8), by ISA-L: a stripe of k pieces of data and m of parity, which
 * lie one after the other in memory, data first.  Any k of them give the others.  (Reed and
 * Solomon, 1960; as parity in remote memory: Lee et al., Hydra, 2022; Zhou et al., Carbink, 2022.)
 *
 * The rows of parity are those of a Cauchy matrix below the identity, of which every square part
 * can be inverted.  Row j does not depend on m.
 *
 * AS: async-signal-safe. All but soda_erasure_start are; nothing is allocated.
 */
#ifndef SODA_POOL_ERASURE_H
#define SODA_POOL_ERASURE_H

#include <stdbool.h>
#include <stdint.h>

enum { SODA_ERASURE_DATA_MAX = 8, SODA_ERASURE_PARITY_MAX = 2 };
enum { SODA_ERASURE_PIECES_MAX = SODA_ERASURE_DATA_MAX + SODA_ERASURE_PARITY_MAX };

/* Whether this build has ISA-L, without which there is no parity: nothing may be encoded. */
bool soda_erasure_built(void);
/* Make the tables; once, before the other functions. */
void soda_erasure_start(void);

/* Piece k + j of the stripe, from its data, to `to`. */
void soda_erasure_encode(uint32_t k, uint32_t j, uint32_t piece_bytes, const void *stripe,
			 void *to);
/* The same, of pieces that lie anywhere. */
void soda_erasure_encode_from(uint32_t k, uint32_t j, uint32_t piece_bytes,
			      const void *const data[], void *to);
/*
 * Fill in the pieces of data that are not in the mask `have` (bit: index) of k pieces or more.
 * false: there are fewer.
 */
bool soda_erasure_decode(uint32_t k, uint32_t have, uint32_t piece_bytes, void *stripe);

#endif
