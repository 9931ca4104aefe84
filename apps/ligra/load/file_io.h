/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arrays to and from files through a local buffer, because a system call
 * cannot be given fabric memory.
 */
#ifndef LIGRA_FILE_IO_H
#define LIGRA_FILE_IO_H

#include "graph/format/error.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Write the whole array at the offset.  0 or -EIO, -ENOSPC and the like. */
int file_write_array(int fd, const char *path, const void *array, size_t bytes, off_t offset,
		     struct soda_graph_error *err);

/* Read the whole array, by all threads.  0; -EINVAL: the file ends before; -EIO; -ENOMEM. */
int file_read_array(int fd, const char *path, void *array, size_t bytes, off_t offset,
		    struct soda_graph_error *err);

#endif
