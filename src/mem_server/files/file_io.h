/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Moves many ranges between a file and memory: with a deep queue (io_uring), or
 * one after the other where the kernel has no io_uring or forbids it.
 */
#ifndef SODA_MEM_SERVER_FILE_IO_H
#define SODA_MEM_SERVER_FILE_IO_H

#include <stdbool.h>
#include <stdint.h>

/* Set by tests only: the kernel counts as having no io_uring. */
extern bool soda_file_io_plain_only;

struct soda_file_io {
	int fd;
	bool write;
	uint8_t *memory; /* where the file's offset 0 lies */
	/* Gives the next range, in any order, none twice; false: there is none. */
	bool (*next)(void *arg, uint64_t *offset_p, uint32_t *bytes_p);
	void *arg;
};

/*
 * Move all ranges.  Blocks; fd has no O_NONBLOCK.  0, or the first error; -EIO: also a read that
 * meets the end of the file.  After it nothing is under way.  Ranges that the queue does not take,
 * or answers with EAGAIN, are moved by pread and pwrite.
 */
int soda_file_io_run(const struct soda_file_io *io);

#endif
