/* SPDX-License-Identifier: BSD-3-Clause */
/* The two halves of files.c that move data: for files.c only. */
#ifndef SODA_MEM_SERVER_FILE_LOAD_H
#define SODA_MEM_SERVER_FILE_LOAD_H

#include "mem_server/files/files.h"

/*
 * Fill a claimed file: reserve its memory, extend the file where it is WRITABLE and
 * shorter than the object, read it.  0; -EAGAIN: the file changed meanwhile; errors
 * of soda_files_open.  On failure the file has its old size.
 */
int soda_file_load(struct soda_files *files, struct soda_file *file, int fd,
		   const struct soda_file_request *req, struct soda_why *why);

void soda_file_version_set(struct soda_file_version *version, const struct stat *st);
bool soda_file_version_equal(const struct soda_file_version *a, const struct soda_file_version *b);

#endif
