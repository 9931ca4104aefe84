/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From memory back to a file.  A dirty byte is cleared before its data is read, so
 * that a store which comes later marks it again; after a failure, of fdatasync too,
 * all that this sync had cleared is dirty again: the kernel may have dropped it.
 */
#include "mem_server/files/files.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "mem_server/base/counters.h"
#include "mem_server/files/file_io.h"

#define SYNC_BYTES (1u << 20) /* longest write */

struct sync {
	const struct soda_file *file;
	uint8_t *taken; /* one a unit: cleared by this sync */
	uint64_t units;
	uint64_t at;
	uint64_t bytes;
};

/* Clear and remember. How many units were dirty. */
static uint64_t take_dirty(struct sync *sync)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < sync->units; i++) {
		/* acquire: pairs with whoever stored the data and then the byte */
		sync->taken[i] =
			!!__atomic_exchange_n(&sync->file->memory.dirty[i], 0, __ATOMIC_ACQ_REL);
		n += sync->taken[i];
	}
	return n;
}

static void give_back(const struct sync *sync)
{
	for (uint64_t i = 0; i < sync->units; i++)
		if (sync->taken[i])
			__atomic_store_n(&sync->file->memory.dirty[i], 1, __ATOMIC_RELEASE);
}

/* The next run of dirty units, cut at the object's end: what lies behind is not the file's. */
static bool next_range(void *arg, uint64_t *offset_p, uint32_t *bytes_p)
{
	struct sync *sync = arg;
	uint64_t first, end;

	while (sync->at < sync->units && !sync->taken[sync->at])
		sync->at++;
	if (sync->at == sync->units)
		return false;
	first = sync->at;
	while (sync->at < sync->units && sync->taken[sync->at] &&
	       sync->at - first < SYNC_BYTES / SODA_DIRTY_UNIT)
		sync->at++;
	end = sync->at * SODA_DIRTY_UNIT;
	if (end > sync->file->bytes)
		end = sync->file->bytes;
	*offset_p = first * SODA_DIRTY_UNIT;
	*bytes_p = (uint32_t)(end - *offset_p);
	sync->bytes += *bytes_p;
	return true;
}

static int write_back(struct sync *sync, struct soda_why *why)
{
	const struct soda_file_io io = { .fd = sync->file->fd,
					 .write = true,
					 .memory = sync->file->memory.map,
					 .next = next_range,
					 .arg = sync };
	int r;

	if (!take_dirty(sync))
		return 0;
	r = soda_file_io_run(&io);
	if (!r && fdatasync(sync->file->fd))
		r = -errno;
	if (!r) {
		soda_count_add(SODA_COUNT_bytes_synced, sync->bytes);
		return 0;
	}
	give_back(sync);
	soda_server_why(why, "cannot write the file back: %s", soda_strerror(r));
	return r == -EDQUOT || r == -EFBIG ? -ENOSPC : r;
}

int soda_file_sync(struct soda_file *file, struct soda_why *why)
{
	struct sync sync = {
		.file = file,
		.units = (file->bytes + SODA_DIRTY_UNIT - 1) / SODA_DIRTY_UNIT,
	};
	int r;

	sync.taken = calloc(sync.units, 1);
	if (!sync.taken) {
		soda_server_why(why, "the server is out of memory");
		return -ENOMEM;
	}
	pthread_mutex_lock(&file->sync_lock);
	r = write_back(&sync, why);
	pthread_mutex_unlock(&file->sync_lock);
	free(sync.taken);
	soda_count_add(SODA_COUNT_syncs, 1);
	soda_count_add(SODA_COUNT_syncs_failed, r != 0);
	return r;
}
