/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem_server/files/journal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/log.h"
#include "mem_server/store/store.h"
#include "wire/field.h"
#include "wire/sealed_file.h"

enum {
	PAGE = SODA_SEALED_PAGE,
	INDEX_ENTRY = 16,
	COPY = 1 << 20,
	AT_RANGES = 8,
	AT_BYTES = 16,
	AT_HASH = 24,
};
static const char magic[8] = { 'S', 'O', 'D', 'A', 'J', 'R', 'N', 'L' };

static int read_at(int fd, void *to, uint64_t bytes, uint64_t offset)
{
	uint8_t *at = to;

	while (bytes) {
		ssize_t n = pread(fd, at, bytes, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		at += n;
		bytes -= (uint64_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

static int write_at(int fd, const void *from, uint64_t bytes, uint64_t offset)
{
	const uint8_t *at = from;

	while (bytes) {
		ssize_t n = pwrite(fd, at, bytes, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		at += n;
		bytes -= (uint64_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

static int sync_data(int fd)
{
	return fdatasync(fd) ? -errno : 0;
}

/* What a file is */

static int cannot_read(const char *name, int err, struct soda_why *why)
{
	soda_server_why(why, "%s: cannot read: %s", name, soda_strerror(err));
	return err;
}

int soda_journal_look(int fd, uint64_t size, const char *name, uint64_t *total_p,
		      struct soda_why *why)
{
	uint8_t page[PAGE];
	struct soda_sealed_header header;
	struct soda_sealed_layout layout;
	int r = 0;

	*total_p = 0;
	if (!size)
		return 0;
	if (size >= PAGE)
		r = read_at(fd, page, PAGE, 0);
	if (r)
		return cannot_read(name, r, why);
	if (size >= PAGE && soda_sealed_kind(page) == SODA_SEALED_MAKING)
		return 0;
	if (size < PAGE || soda_sealed_kind(page) == SODA_SEALED_NOT) {
		soda_server_why(why,
				"%s: is not sealed, and sealing is asked for (SODA_SEAL): it is "
				"used without, or another file with",
				name);
		return -EINVAL;
	}
	if (soda_sealed_get_header(page, &header) || soda_sealed_layout(header.bytes, &layout)) {
		soda_server_why(why, "%s: its header as a sealed file is damaged", name);
		return -EINVAL;
	}
	if (size < layout.total) {
		soda_server_why(why, "%s: is cut off: it has %llu bytes of %llu", name,
				(unsigned long long)size, (unsigned long long)layout.total);
		return -EINVAL;
	}
	*total_p = layout.total;
	return 0;
}

int soda_journal_make(int fd)
{
	uint8_t page[PAGE];
	int r = ftruncate(fd, 0) ? -errno : 0;

	soda_sealed_put_making(page);
	r = r ? r : write_at(fd, page, PAGE, 0);
	return r ? r : sync_data(fd);
}

/* Writing */

struct writing {
	int fd;
	uint64_t at;
	XXH3_state_t *hash;
};

static int append(struct writing *w, const void *from, uint64_t bytes)
{
	int r = write_at(w->fd, from, bytes, w->at);

	XXH3_64bits_update(w->hash, from, bytes);
	w->at += bytes;
	return r;
}

static uint64_t index_bytes(uint64_t ranges)
{
	return (ranges * INDEX_ENTRY + PAGE - 1) / PAGE * PAGE;
}

static int append_index(struct writing *w, const struct soda_journal_range *ranges, uint64_t n)
{
	uint8_t *index = calloc(1, index_bytes(n));
	int r;

	if (!index)
		return -ENOMEM;
	for (uint64_t i = 0; i < n; i++) {
		soda_wire_put_u64(index + i * INDEX_ENTRY, ranges[i].offset);
		soda_wire_put_u64(index + i * INDEX_ENTRY + 8, ranges[i].bytes);
	}
	r = append(w, index, index_bytes(n));
	free(index);
	return r;
}

static int append_trailer(struct writing *w, uint64_t ranges, uint64_t bytes)
{
	uint8_t page[PAGE] = { 0 };

	memcpy(page, magic, sizeof(magic));
	soda_wire_put_u64(page + AT_RANGES, ranges);
	soda_wire_put_u64(page + AT_BYTES, bytes);
	XXH3_64bits_update(w->hash, page, AT_HASH);
	soda_wire_put_u64(page + AT_HASH, XXH3_64bits_digest(w->hash));
	return write_at(w->fd, page, PAGE, w->at);
}

int soda_journal_write(int fd, uint64_t total, const uint8_t *memory,
		       const struct soda_journal_range *ranges, uint64_t n)
{
	struct writing w = { fd, total, XXH3_createState() };
	uint64_t bytes = 0;
	int r = w.hash ? 0 : -ENOMEM;

	if (!r)
		XXH3_64bits_reset(w.hash);
	for (uint64_t i = 0; i < n && !r; i++) {
		r = append(&w, memory + ranges[i].offset, ranges[i].bytes);
		bytes += ranges[i].bytes;
	}
	if (!r)
		r = append_index(&w, ranges, n);
	if (!r)
		r = append_trailer(&w, n, bytes);
	if (!r)
		r = sync_data(fd);
	XXH3_freeState(w.hash);
	if (r)
		soda_journal_end(fd, total);
	return r;
}

int soda_journal_end(int fd, uint64_t total)
{
	return ftruncate(fd, (off_t)total) ? -errno : 0;
}

/* Recovery */

struct journal {
	int fd;
	uint64_t total, ranges, bytes;
	uint8_t *index, *buffer;
};

/* Whether the sizes in the trailer are those of this file. */
static bool fits(const struct journal *j, uint64_t size)
{
	uint64_t room = size - j->total;

	return j->ranges && j->ranges <= room / INDEX_ENTRY && j->bytes <= room &&
	       room == j->bytes + index_bytes(j->ranges) + PAGE;
}

static int hash_journal(const struct journal *j, const uint8_t *trailer, uint64_t *hash_p)
{
	XXH3_state_t *hash = XXH3_createState();
	uint64_t left = j->bytes + index_bytes(j->ranges), at = j->total;
	int r = hash ? 0 : -ENOMEM;

	if (!r)
		XXH3_64bits_reset(hash);
	while (left && !r) {
		uint64_t n = left < COPY ? left : COPY;

		r = read_at(j->fd, j->buffer, n, at);
		if (!r)
			XXH3_64bits_update(hash, j->buffer, n);
		at += n;
		left -= n;
	}
	if (!r) {
		XXH3_64bits_update(hash, trailer, AT_HASH);
		*hash_p = XXH3_64bits_digest(hash);
	}
	XXH3_freeState(hash);
	return r;
}

/* 1: the file ends with a whole journal; 0: it does not; or negative errno. */
static int find(struct journal *j)
{
	uint8_t trailer[PAGE];
	struct stat st;
	uint64_t size, hash;
	int r = fstat(j->fd, &st) ? -errno : 0;

	size = r ? 0 : (uint64_t)st.st_size;
	if (r || size < j->total + PAGE)
		return r;
	r = read_at(j->fd, trailer, PAGE, size - PAGE);
	if (r || memcmp(trailer, magic, sizeof(magic)))
		return r;
	j->ranges = soda_wire_get_u64(trailer + AT_RANGES);
	j->bytes = soda_wire_get_u64(trailer + AT_BYTES);
	if (!fits(j, size))
		return 0;
	r = hash_journal(j, trailer, &hash);
	if (r || hash != soda_wire_get_u64(trailer + AT_HASH))
		return r;
	j->index = malloc(index_bytes(j->ranges));
	if (!j->index)
		return -ENOMEM;
	r = read_at(j->fd, j->index, index_bytes(j->ranges), j->total + j->bytes);
	return r ? r : 1;
}

static int move(const struct journal *j, uint64_t from, uint64_t to, uint64_t bytes)
{
	int r = 0;

	while (bytes && !r) {
		uint64_t n = bytes < COPY ? bytes : COPY;

		r = read_at(j->fd, j->buffer, n, from);
		if (!r)
			r = write_at(j->fd, j->buffer, n, to);
		from += n;
		to += n;
		bytes -= n;
	}
	return r;
}

static int apply(const struct journal *j)
{
	uint64_t from = j->total, end = j->total + j->bytes;
	int r = 0;

	for (uint64_t i = 0; i < j->ranges && !r; i++) {
		uint64_t to = soda_wire_get_u64(j->index + i * INDEX_ENTRY);
		uint64_t n = soda_wire_get_u64(j->index + i * INDEX_ENTRY + 8);

		if (to > j->total || n > j->total - to || n > end - from)
			return -EINVAL;
		r = move(j, from, to, n);
		from += n;
	}
	return r ? r : sync_data(j->fd);
}

int soda_journal_recover(int fd, uint64_t total)
{
	struct journal j = { .fd = fd, .total = total, .buffer = malloc(COPY) };
	int r = j.buffer ? find(&j) : -ENOMEM;

	if (r > 0) {
		r = apply(&j);
		if (!r)
			soda_log_info("a sealed file that was being written back has got %llu "
				      "bytes of its journal",
				      (unsigned long long)j.bytes);
	}
	free(j.index);
	free(j.buffer);
	return r ? r : soda_journal_end(fd, total);
}
