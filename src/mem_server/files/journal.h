/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sealed files (wire/sealed_file.h), of which the server knows the layout and no key: a sync
 * changes all of what it changes, or nothing.
 *
 * What is to be changed is first written behind the file's end, with a trailer, and brought to
 * stable storage; then it is written in its place, and brought there; then the file is cut off
 * again.
 *
 *   header, table, blocks | ranges' content | index: offset, bytes of each | trailer, 4096 bytes
 *                         ^ total
 *
 * So at any moment the part before `total` is as the last sync has left it, or the journal behind
 * it is whole, and has all that differs from how the next one leaves it: what opens the file then
 * writes that again.  A trailer is only believed with the hash of all of the journal.
 */
#ifndef SODA_MEM_SERVER_JOURNAL_H
#define SODA_MEM_SERVER_JOURNAL_H

#include <stdint.h>

#include "transport/api/transport.h"

struct soda_journal_range {
	uint64_t offset, bytes;
};

/*
 * What the file is: *total_p: where its content ends; 0: it is empty, or was never committed, and
 * is to be made.  Changes nothing.  0; -EINVAL: it is not sealed, damaged, or cut off; errors of
 * reading.
 */
int soda_journal_look(int fd, uint64_t size, const char *name, uint64_t *total_p,
		      struct soda_why *why);
/* Begin an empty file, or one that was never committed: only its first page is written. 0, errno.
 */
int soda_journal_make(int fd);
/*
 * Write what a whole journal has to its places, and cut the file off at `total`.  Nobody else uses
 * the file.  0; -EINVAL: a whole journal that does not fit; errors of reading and writing.
 */
int soda_journal_recover(int fd, uint64_t total);
/*
 * Write a journal of ranges of memory, whose byte 0 is that of the file, and bring it to stable
 * storage. 0, or negative errno: there is no whole journal.
 */
int soda_journal_write(int fd, uint64_t total, const uint8_t *memory,
		       const struct soda_journal_range *ranges, uint64_t n);
/* The ranges are in their places, in stable storage. 0 or negative errno. */
int soda_journal_end(int fd, uint64_t total);

#endif
