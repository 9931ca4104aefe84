/* SPDX-License-Identifier: BSD-3-Clause */
/* From a file to memory. */
#include "mem_server/files/file_load.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/log.h"
#include "mem_server/base/counters.h"
#include "mem_server/files/file_io.h"
#include "soda.h"

#define LOAD_BYTES (1u << 20)

void soda_file_version_set(struct soda_file_version *version, const struct stat *st)
{
	*version = (struct soda_file_version){ st->st_dev, st->st_ino, (uint64_t)st->st_size,
					       st->st_mtim };
}

bool soda_file_version_equal(const struct soda_file_version *a, const struct soda_file_version *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
	       a->mtime.tv_sec == b->mtime.tv_sec && a->mtime.tv_nsec == b->mtime.tv_nsec;
}

uint64_t soda_file_id(const struct soda_file *file)
{
	const struct soda_file_version *v = &file->version;
	const uint64_t parts[] = { v->dev, v->ino, v->size, (uint64_t)v->mtime.tv_sec,
				   (uint64_t)v->mtime.tv_nsec };
	uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a, bytes in a fixed order */

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		for (unsigned shift = 0; shift < 64; shift += 8)
			hash = (hash ^ (parts[i] >> shift & 0xff)) * 0x100000001b3u;
	return hash ? hash : 1;
}

struct load {
	uint64_t at, end;
};

static bool next_range(void *arg, uint64_t *offset_p, uint32_t *bytes_p)
{
	struct load *load = arg;
	uint64_t left = load->end - load->at;

	*offset_p = load->at;
	*bytes_p = (uint32_t)(left < LOAD_BYTES ? left : LOAD_BYTES);
	load->at += *bytes_p;
	return left;
}

static int read_contents(struct soda_file *file, int fd, uint64_t bytes,
			 const struct soda_file_request *req, struct soda_why *why)
{
	struct load load = { 0, bytes };
	const struct soda_file_io io = {
		.fd = fd, .memory = file->memory.map, .next = next_range, .arg = &load
	};
	struct soda_file_version now;
	struct stat st;
	int r = soda_file_io_run(&io);

	/* A change explains an early end of the file too. */
	if (fstat(fd, &st))
		return -errno;
	soda_file_version_set(&now, &st);
	if (!soda_file_version_equal(&now, &file->version))
		return -EAGAIN;
	if (r) {
		soda_server_why(why, "%s: cannot read: %s", req->name, soda_strerror(r));
		return -EIO;
	}
	soda_count_add(SODA_COUNT_files_loaded, 1);
	soda_count_add(SODA_COUNT_bytes_loaded, bytes);
	return 0;
}

/* Make the file as long as the object, with its blocks reserved where the file system can. */
static int extend(struct soda_file *file, int fd, const struct soda_file_request *req,
		  struct soda_why *why)
{
	off_t old = (off_t)file->version.size, new = (off_t)file->bytes;
	struct stat st;
	int r = fallocate(fd, 0, old, new - old) ? -errno : 0;

	if (r == -EOPNOTSUPP)
		r = ftruncate(fd, new) ? -errno : 0;
	if (!r)
		r = fstat(fd, &st) ? -errno : 0;
	if (!r) {
		soda_file_version_set(&file->version, &st);
		return 0;
	}
	if (ftruncate(fd, old))
		soda_log_warning("%s: cannot take back its extension: %s", req->name,
				 soda_strerror(errno));
	soda_server_why(why, "%s: cannot extend the file: %s", req->name, soda_strerror(r));
	return r == -EDQUOT ? -ENOSPC : r;
}

/*
 * It was looked at before it was claimed: another client may have written to it in between, and
 * has ended by now; or it may have lost its name, and nobody would find what is written to it.
 */
static int look_again(const struct soda_file *file, int fd)
{
	struct soda_file_version now;
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	soda_file_version_set(&now, &st);
	if (!soda_file_version_equal(&now, &file->version) ||
	    (file->mode == SODA_WRITABLE && !st.st_nlink))
		return -EAGAIN;
	return 0;
}

int soda_file_load(struct soda_files *files, struct soda_file *file, int fd,
		   const struct soda_file_request *req, struct soda_why *why)
{
	bool shared = file->mode == SODA_READ_ONLY;
	const struct soda_memory_options opt = {
		.bytes = file->bytes,
		.dirty_map = file->mode == SODA_WRITABLE,
		.freezes = shared,
		.populate = req->populate || shared, /* whoever joins may need the descriptor */
	};
	uint64_t old = file->version.size;
	int r = look_again(file, fd);

	if (!r)
		r = soda_memory_create(files->store, &opt, &file->memory, why);
	if (r)
		return r;
	if (file->mode == SODA_WRITABLE && file->bytes > old)
		r = extend(file, fd, req, why);
	if (r)
		return r;
	r = read_contents(file, fd, old < file->bytes ? old : file->bytes, req, why);
	if (!r && shared)
		r = soda_memory_freeze(&file->memory, why);
	if (r && file->version.size > old && ftruncate(fd, (off_t)old))
		soda_log_warning("%s: cannot take back its extension: %s", req->name,
				 soda_strerror(errno));
	return r;
}
