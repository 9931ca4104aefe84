/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory of the fake server: its regions. */
#include <stdlib.h>
#include <string.h>

#include "unit/fakes/fake_conn.h"
#include "unit/fakes/fake_page_ops.h"

enum { PAGE = 4096, REGIONS = 64 };

static struct {
	uint8_t *bytes;
	uint64_t size;
} regions[REGIONS];

void fake_server_forget(void)
{
	for (uint16_t i = 0; i < REGIONS; i++)
		fake_server_close(i);
}

uint8_t *fake_server_open(uint16_t region_id, uint64_t bytes)
{
	if (region_id >= REGIONS || regions[region_id].bytes)
		return NULL;
	regions[region_id].bytes = calloc(1, bytes);
	regions[region_id].size = bytes;
	return regions[region_id].bytes;
}

bool fake_server_has(uint16_t region_id)
{
	return region_id < REGIONS && regions[region_id].bytes;
}

void fake_server_close(uint16_t region_id)
{
	free(regions[region_id].bytes);
	regions[region_id].bytes = NULL;
	regions[region_id].size = 0;
}

uint8_t *fake_server_at(uint16_t region_id, uint64_t offset, uint32_t bytes)
{
	if (region_id >= REGIONS || !regions[region_id].bytes ||
	    offset + bytes > regions[region_id].size)
		fake_fail("%u bytes at %llu of region %u: the server has no such", bytes,
			  (unsigned long long)offset, region_id);
	return regions[region_id].bytes + offset;
}

const void *fake_server_page(uint16_t region_id, uint64_t offset)
{
	return fake_server_at(region_id, offset, PAGE);
}

uint64_t fake_server_word(uint16_t region_id, uint64_t offset)
{
	uint64_t v;

	fake_lock();
	memcpy(&v, fake_server_at(region_id, offset, sizeof(v)), sizeof(v));
	fake_unlock();
	return v;
}
