/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Moving many ranges between a file and memory with a deep queue (io_uring), or
 * one after the other where the kernel has none or forbids it.
 */
#ifndef SODA_MEM_SERVER_FILE_IO_H
#define SODA_MEM_SERVER_FILE_IO_H

#include <stdbool.h>
#include <stdint.h>

/* Only for tests: pretend that the kernel has no io_uring. */
extern bool soda_file_io_plain_only;

struct soda_file_io {
	int fd;
	bool write;
	uint8_t *memory; /* of the file's offset 0 */
	/* The next range, in any order, none twice; false: no more. */
	bool (*next)(void *arg, uint64_t *offset_p, uint32_t *bytes_p);
	void *arg;
};

/*
 * Move all ranges.  0; or the first error, after which nothing is under way: a
 * read that meets the end of the file is -EIO.  Blocks: fd has no O_NONBLOCK.  What the
 * queue does not take, or answers with "try again", is moved without it.
 */
int soda_file_io_run(const struct soda_file_io *io);

#endif
