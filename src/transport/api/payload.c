/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/api/payload.h"

#include <stdatomic.h>
#include <string.h>

static _Atomic uint64_t copied;

void soda_payload_copy(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
	atomic_fetch_add_explicit(&copied, bytes, memory_order_relaxed);
}

uint64_t soda_payload_copied(void)
{
	return atomic_load_explicit(&copied, memory_order_relaxed);
}
