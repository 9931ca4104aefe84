/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem_server/files/published.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "mem_server/base/counters.h"

int soda_published_check(const char *name, size_t bytes, char out[SODA_WIRE_MAX_NAME + 1],
			 struct soda_why *why)
{
	size_t good = 0;

	while (good < bytes && name[good] > ' ' && name[good] <= '~')
		good++;
	if (!bytes || bytes > SODA_WIRE_MAX_NAME || good < bytes) {
		soda_server_why(why,
				"a published object's name has 1 to %u printable characters of"
				" ASCII, and no space",
				SODA_WIRE_MAX_NAME);
		return -EINVAL;
	}
	memcpy(out, name, bytes);
	out[bytes] = 0;
	return 0;
}

static struct soda_file *find_locked(const struct soda_files *files, uint64_t owner,
				     const char *name)
{
	struct soda_file *at = files->in_use;

	while (at && (!at->published || at->published->owner != owner ||
		      strcmp(at->published->name, name) != 0))
		at = at->next;
	return at;
}

/*
 * *fd_p: a descriptor of the memory, for reading alone, which nobody but the server's own user
 * opens anew for more; -1 where the memory has none. 0, negative errno.
 */
static int open_to_read(const struct soda_memory *memory, int *fd_p)
{
	char path[32];

	*fd_p = -1;
	if (memory->fd < 0)
		return 0;
	if (fchmod(memory->fd, S_IRUSR | S_IWUSR) < 0)
		return -errno;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", memory->fd);
	*fd_p = open(path, O_RDONLY | O_CLOEXEC);
	return *fd_p < 0 ? -errno : 0;
}

static struct soda_file *create(uint64_t owner, const char *name, const struct soda_memory *memory,
				uint64_t bytes)
{
	struct soda_file *file = calloc(1, sizeof(*file));
	struct soda_published *published = calloc(1, sizeof(*published));

	if (!file || !published) {
		free(file);
		free(published);
		return NULL;
	}
	published->fd = -1;
	published->id = soda_server_random_id();
	published->owner = owner;
	strcpy(published->name, name);
	file->bytes = bytes;
	file->mode = SODA_WIRE_READ_ONLY;
	file->state = SODA_FILE_READY;
	file->refs = 1;
	file->fd = -1;
	file->published = published;
	file->memory = *memory;
	pthread_mutex_init(&file->sync_lock, NULL);
	return file;
}

/* An object that was never in the list; its memory is the region's. */
static void forget(struct soda_file *file)
{
	pthread_mutex_destroy(&file->sync_lock);
	soda_published_free(file->published);
	free(file);
}

void soda_published_free(struct soda_published *published)
{
	if (published && published->fd >= 0)
		close(published->fd);
	free(published);
}

int soda_published_add(struct soda_files *files, uint64_t owner, const char *name,
		       const struct soda_memory *memory, uint64_t bytes, struct soda_file **file_p,
		       struct soda_why *why)
{
	struct soda_file *file = create(owner, name, memory, bytes);
	bool taken;
	int ret;

	if (!file) {
		soda_server_why(why, "the server is out of memory");
		return -ENOMEM;
	}
	ret = open_to_read(memory, &file->published->fd);
	if (ret) {
		forget(file);
		soda_server_why(why,
				"the server cannot open the object's memory for its readers: %s",
				soda_strerror(ret));
		return ret;
	}
	pthread_mutex_lock(&files->lock);
	taken = find_locked(files, owner, name);
	if (!taken) {
		file->generation = ++files->generation;
		file->next = files->in_use;
		files->in_use = file;
	}
	pthread_mutex_unlock(&files->lock);
	if (taken) {
		forget(file);
		soda_server_why(why,
				"%.100s: published already, and not closed by all that have it:"
				" choose another name",
				name);
		return -EEXIST;
	}
	soda_count_add(SODA_COUNT_objects_published, 1);
	*file_p = file;
	return 0;
}

int soda_published_open(struct soda_files *files, uint64_t owner, const char *name,
			struct soda_account *account, struct soda_file **file_p,
			struct soda_why *why)
{
	struct soda_file *file;
	int r;

	pthread_mutex_lock(&files->lock);
	file = find_locked(files, owner, name);
	if (file)
		file->refs++;
	pthread_mutex_unlock(&files->lock);
	if (!file) {
		soda_server_why(why, "%.100s: user %u has published no object of that name", name,
				(unsigned)owner); /* the lower half */
		return -ENOENT;
	}
	r = soda_account_charge(files->store, account, file->memory.backing_bytes, why);
	if (r) {
		soda_files_close(files, file, NULL);
		return r;
	}
	soda_count_add(SODA_COUNT_files_shared, 1);
	*file_p = file;
	return 0;
}
