/* SPDX-License-Identifier: BSD-3-Clause */
#include "disk.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fibers.h"
#include "nodes.h"
#include "sealing/sealing.h"
#include "trust/tenants.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define REWRITE (25 * SIM_MS) /* more than what the server does not tell apart: files/mark.c */

enum { PAGE = 4096, NODES = 24, OPEN = 256, ROOM = 1 << 20, RING = 64 };

struct node {
	bool used, dir;
	char name[32];
	int parent;
	mode_t mode;
	uid_t uid;
	gid_t gid;
	unsigned links;
	size_t size, stable_size;
	uint8_t *data, *stable;
	uint64_t changed, modified; /* times, none twice */
	uint8_t attribute[32];	    /* the only one that a file has */
	size_t attribute_bytes;
	uint8_t stable_attribute[32];
};

static struct node nodes[NODES];
static struct node *opened[OPEN];
static uint64_t last_change;

static void change(struct node *n)
{
	last_change = sim_now() > last_change ? sim_now() : last_change + 1;
	n->changed = n->modified = last_change;
}

static struct node *make(int parent, const char *name, mode_t mode, uid_t uid)
{
	int i = 0;

	while (i < NODES && nodes[i].used)
		i++;
	if (i == NODES)
		return NULL;
	nodes[i] = (struct node){ .used = true,
				  .dir = S_ISDIR(mode),
				  .parent = parent,
				  .mode = mode,
				  .uid = uid,
				  .gid = uid,
				  .links = 1 };
	snprintf(nodes[i].name, sizeof(nodes[i].name), "%s", name);
	if (!nodes[i].dir) {
		nodes[i].data = calloc(1, ROOM);
		nodes[i].stable = calloc(1, ROOM);
	}
	change(&nodes[i]);
	return &nodes[i];
}

static void make_file(const char *name, size_t bytes, mode_t mode)
{
	struct node *n = make(0, name, S_IFREG | mode, SIM_DISK_USER);
	static uint64_t number;

	n->size = n->stable_size = bytes;
	for (size_t at = 0; at + 8 <= bytes; at += at % PAGE ? 8 : PAGE - 8) {
		number++;
		memcpy(n->data + at, &number, sizeof(number));
		memcpy(n->stable + at, &number, sizeof(number));
	}
}

void sim_disk_make(void)
{
	static const char key[] =
		"[seal]\nkey = 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n";

	make(-1, "", S_IFDIR | 0755, 0);
	make_file("f0", 40 * PAGE, 0644);
	make_file("f1", 7 * PAGE + 100, 0600);
	make_file("f2", 30 * PAGE, 0644);
	make_file("f3", 12 * PAGE, 0600);
	make(0, "d", S_IFDIR | 0755, SIM_DISK_USER);
	sim_private_put(SIM_DISK_KEY, key, sizeof(key) - 1);
}

bool sim_disk_is_being_changed(const char *name)
{
	enum { CTIME = 16, MARK_BYTES = 24 };
	static const uint8_t none[MARK_BYTES - CTIME];

	for (struct node *n = nodes; n < nodes + NODES; n++)
		if (n->used && !n->dir && !strcmp(n->name, name))
			return n->attribute_bytes == MARK_BYTES &&
			       !memcmp(n->attribute + CTIME, none, sizeof(none));
	return false;
}

void sim_disk_rewrite(const char *name, uint64_t *number, bool dated)
{
	for (struct node *n = nodes; n < nodes + NODES; n++) {
		uint64_t modified = n->modified;

		if (!n->used || n->dir || strcmp(n->name, name))
			continue;
		for (size_t at = 0; at + 8 <= n->size; at += at % PAGE ? 8 : PAGE - 8) {
			++*number;
			memcpy(n->data + at, number, sizeof(*number));
			memcpy(n->stable + at, number, sizeof(*number));
		}
		last_change += REWRITE; /* it takes a moment */
		change(n);
		n->modified = dated ? modified : n->modified;
	}
}

static bool is_sealed(const struct node *n)
{
	return n->used && !n->dir && n->name[0] == 's';
}

/* Pages go as it happens, and so does the size. */
static void lose_power(struct node *n)
{
	if (n->size == n->stable_size && !memcmp(n->data, n->stable, n->size))
		return;
	if (sim_chance(50) && n->size != n->stable_size) {
		if (n->stable_size < n->size)
			memset(n->data + n->stable_size, 0, n->size - n->stable_size);
		n->size = n->stable_size;
	}
	for (size_t at = 0; at < n->size; at += PAGE)
		if (sim_chance(50))
			memcpy(n->data + at, n->stable + at, PAGE);
	memcpy(n->attribute, n->stable_attribute,
	       sizeof(n->attribute)); /* a journal has an order */
	sim_note("FAULT the disk of %s loses power", n->name);
	change(n);
}

void sim_disk_kill(void)
{
	memset(opened, 0, sizeof(opened));
	for (int i = 0; i < NODES; i++)
		if (is_sealed(&nodes[i]) && sim_chance(50))
			lose_power(&nodes[i]);
}

static struct node *child(const struct node *dir, const char *name, size_t bytes)
{
	int parent = (int)(dir - nodes);

	for (int i = 1; i < NODES; i++)
		if (nodes[i].used && nodes[i].links && nodes[i].parent == parent &&
		    strlen(nodes[i].name) == bytes && !memcmp(nodes[i].name, name, bytes))
			return &nodes[i];
	return NULL;
}

/* The directory of the last part, which *last_p points to; NULL, and errno. */
static struct node *walk(struct node *at, const char *name, const char **last_p)
{
	const char *slash;

	while ((slash = strchr(name, '/'))) {
		if (slash > name)
			at = child(at, name, (size_t)(slash - name));
		if (!at || !at->dir) {
			errno = at ? ENOTDIR : ENOENT;
			return NULL;
		}
		name = slash + 1;
	}
	*last_p = name;
	return at;
}

static struct node *look_up(struct node *at, const char *name)
{
	const char *last;
	struct node *dir = walk(at, name, &last);

	if (!dir || !*last || !strcmp(last, "."))
		return dir;
	return child(dir, last, strlen(last));
}

size_t sim_disk_pages(const char *name)
{
	struct node *n = look_up(&nodes[0], name);

	return n && !n->dir ? n->size / PAGE : 0;
}

const uint8_t *sim_disk_file(const char *name, bool stable, size_t *bytes_p)
{
	const struct node *n = look_up(&nodes[0], name);

	if (!n || n->dir)
		return NULL;
	*bytes_p = stable ? n->stable_size : n->size;
	return stable ? n->stable : n->data;
}

uint64_t sim_disk_word(const char *name, uint64_t offset, bool stable)
{
	struct node *n = look_up(&nodes[0], name);
	uint64_t word;

	if (!n || n->dir || offset + 8 > ROOM)
		sim_fail("there is no word at %llu of %s", (unsigned long long)offset, name);
	memcpy(&word, (stable ? n->stable : n->data) + offset, sizeof(word));
	return word;
}

bool sim_disk_owns(int fd)
{
	return fd >= SIM_DISK_FD && fd < SIM_DISK_FD + OPEN && opened[fd - SIM_DISK_FD];
}

static struct node *node_of(int fd)
{
	return sim_disk_owns(fd) ? opened[fd - SIM_DISK_FD] : NULL;
}

static int new_descriptor(struct node *n)
{
	int i = 0;

	if (sim_lacks_descriptor())
		i = OPEN;
	while (i < OPEN && opened[i])
		i++;
	if (i == OPEN) {
		errno = EMFILE;
		return -1;
	}
	opened[i] = n;
	return SIM_DISK_FD + i;
}

int sim_disk_close(int fd)
{
	opened[fd - SIM_DISK_FD] = NULL;
	return 0;
}

static int open_at(int dir, const char *name, int flags, mode_t mode)
{
	struct node *at = node_of(dir), *n;
	const char *last;

	sim_point();
	at = at ? walk(at, name, &last) : NULL;
	if (!at)
		return -1;
	n = !*last || !strcmp(last, ".") ? at : child(at, last, strlen(last));
	errno = !n && !(flags & O_CREAT)					? ENOENT
		: n && flags & O_EXCL						? EEXIST
		: n && flags & O_DIRECTORY && !n->dir				? ENOTDIR
		: n && n->dir && (flags & O_ACCMODE) != O_RDONLY		? EISDIR
		: !n && !(n = make((int)(at - nodes), last, S_IFREG | mode, 0)) ? ENOSPC
										: 0;
	return errno ? -1 : new_descriptor(n);
}

long sim_disk_openat2(int dir, const char *name, const struct open_how *how)
{
	if (sim_chance(2)) { /* a rename races it */
		errno = EAGAIN;
		return -1;
	}
	return open_at(dir, name, (int)how->flags, (mode_t)how->mode);
}

int sim_openat64(int dir, const char *name, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = (mode_t)va_arg(args, int);
	va_end(args);
	if (dir == SIM_STATE_FD)
		return strcmp(name, ".") ? sim_state_open(name, flags) : SIM_STATE_FD;
	return sim_disk_owns(dir) ? open_at(dir, name, flags, mode)
				  : openat(dir, name, flags, mode);
}

int sim_open64(const char *name, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = (mode_t)va_arg(args, int);
	va_end(args);
	if (sim_private_owns(name))
		return sim_private_open(name);
	if (!strcmp(name, SIM_STATE))
		return SIM_STATE_FD;
	return strcmp(name, SIM_DISK_EXPORT) ? open(name, flags, mode) : new_descriptor(&nodes[0]);
}

static void describe(const struct node *n, struct stat *st)
{
	*st = (struct stat){ .st_dev = 1,
			     .st_ino = (ino_t)(n - nodes) + 1,
			     .st_mode = n->mode,
			     .st_nlink = n->links,
			     .st_uid = n->uid,
			     .st_gid = n->gid,
			     .st_size = (off_t)n->size,
			     .st_mtim = { .tv_sec = (time_t)(n->modified / SIM_S),
					  .tv_nsec = (long)(n->modified % SIM_S) },
			     .st_ctim = { .tv_sec = (time_t)(n->changed / SIM_S),
					  .tv_nsec = (long)(n->changed % SIM_S) } };
}

int sim_fstat64(int fd, struct stat *st)
{
	sim_point();
	if (fd == SIM_STATE_FD) {
		*st = (struct stat){ .st_mode = S_IFDIR | 0700 };
		return 0;
	}
	if (!sim_disk_owns(fd))
		return fstat(fd, st);
	describe(node_of(fd), st);
	return 0;
}

int sim_stat64(const char *name, struct stat *st)
{
	return sim_private_owns(name) ? sim_private_stat(name, st) : stat(name, st);
}

int sim_fstatat64(int dir, const char *name, struct stat *st, int flags)
{
	struct node *n;

	if (!sim_disk_owns(dir))
		return fstatat(dir, name, st, flags);
	n = look_up(node_of(dir), name);
	errno = ENOENT;
	if (n)
		describe(n, st);
	return n ? 0 : -1;
}

int sim_fcntl64(int fd, int command, ...)
{
	va_list args;
	long arg;

	va_start(args, command);
	arg = va_arg(args, long);
	va_end(args);
	if (!sim_disk_owns(fd))
		return fcntl(fd, command, arg);
	return command == F_DUPFD_CLOEXEC ? new_descriptor(node_of(fd)) : 0;
}

int sim_fchown(int fd, uid_t uid, gid_t gid)
{
	struct node *n = node_of(fd);

	n->uid = uid;
	if (gid != (gid_t)-1)
		n->gid = gid;
	return 0;
}

int sim_unlinkat(int dir, const char *name, int flags)
{
	struct node *n;

	if (dir == SIM_STATE_FD)
		return sim_state_unlink(name);
	n = look_up(node_of(dir), name);
	errno = ENOENT;
	if (n)
		n->links = 0; /* its place is not used again in this seed */
	return n ? 0 : -1;
}

/* The server is root. */
uid_t sim_geteuid(void)
{
	return 0;
}

/* No access control lists. */
ssize_t sim_getxattr(const char *path, const char *name, void *value, size_t bytes)
{
	errno = ENODATA;
	return -1;
}

/* A disk that lacks what the server lacks. */
static bool breaks(int error)
{
	errno = error;
	return sim_lacks_descriptor();
}

ssize_t sim_fgetxattr(int fd, const char *name, void *value, size_t bytes)
{
	struct node *n = node_of(fd);

	sim_point();
	errno = n && n->attribute_bytes ? ERANGE : ENODATA;
	if (!n || !n->attribute_bytes || bytes < n->attribute_bytes)
		return -1;
	memcpy(value, n->attribute, n->attribute_bytes);
	return (ssize_t)n->attribute_bytes;
}

int sim_fsetxattr(int fd, const char *name, const void *value, size_t bytes, int flags)
{
	struct node *n = node_of(fd);

	sim_point();
	if (!n || bytes > sizeof(n->attribute) || breaks(ENOSPC))
		return -1;
	memcpy(n->attribute, value, bytes);
	n->attribute_bytes = bytes;
	last_change = sim_now() > last_change ? sim_now() : last_change + 1;
	n->changed = last_change;
	return 0;
}

int sim_fallocate64(int fd, int mode, off_t offset, off_t bytes)
{
	struct node *n = node_of(fd);

	errno = ENOSPC;
	if (!n && !mode && sim_lacks_memory())
		return -1;
	if (!n)
		return sim_memfd_punch(fd, mode, offset, bytes);
	if (breaks(ENOSPC) || offset + bytes > ROOM)
		return -1;
	if (sim_chance(20)) {
		errno = EOPNOTSUPP;
		return -1;
	}
	n->size = (size_t)(offset + bytes) > n->size ? (size_t)(offset + bytes) : n->size;
	change(n);
	return 0;
}

int sim_ftruncate64(int fd, off_t bytes)
{
	struct node *n = node_of(fd);

	if (!n)
		return ftruncate(fd, bytes);
	if (breaks(EIO) || bytes > ROOM)
		return -1;
	if ((size_t)bytes < n->size)
		memset(n->data + bytes, 0, n->size - (size_t)bytes);
	n->size = (size_t)bytes;
	change(n);
	return 0;
}

/* As pread and pwrite, with what they may do: less than they were asked for, and be interrupted. */
static ssize_t move(int fd, void *memory, size_t bytes, off_t offset, bool write)
{
	struct node *n = node_of(fd);
	size_t at = (size_t)offset, end = write ? ROOM : n->size;

	sim_point();
	if (breaks(EIO))
		return -1;
	if (sim_chance(2)) {
		errno = EINTR;
		return -1;
	}
	if (at >= end)
		return 0;
	if (bytes > end - at)
		bytes = end - at;
	if (bytes > 512 && sim_chance(10))
		bytes = sim_between(1, bytes);
	sim_spend(bytes / 4);
	if (!write) {
		memcpy(memory, n->data + at, bytes);
		return (ssize_t)bytes;
	}
	memcpy(n->data + at, memory, bytes);
	if (at + bytes > n->size)
		n->size = at + bytes;
	change(n);
	return (ssize_t)bytes;
}

ssize_t sim_pread64(int fd, void *memory, size_t bytes, off_t offset)
{
	return sim_disk_owns(fd) ? move(fd, memory, bytes, offset, false)
				 : pread(fd, memory, bytes, offset);
}

ssize_t sim_pwrite64(int fd, const void *memory, size_t bytes, off_t offset)
{
	return sim_disk_owns(fd) ? move(fd, (void *)(uintptr_t)memory, bytes, offset, true)
				 : sim_memfd_write(fd, memory, bytes, offset);
}

/* Where it fails nothing of it counts, as on a kernel that drops what it could not write. */
int sim_fdatasync(int fd)
{
	struct node *n = node_of(fd);

	sim_sleep(1 + sim_below(300 * SIM_US), "the disk");
	if (breaks(EIO))
		return -1;
	memcpy(n->stable, n->data, n->size);
	memcpy(n->stable_attribute, n->attribute, sizeof(n->attribute));
	n->stable_size = n->size;
	return 0;
}

int sim_fsync(int fd)
{
	struct node *n = node_of(fd);

	sim_sleep(1 + sim_below(300 * SIM_US), "the disk");
	if (breaks(EIO))
		return -1;
	if (n)
		memcpy(n->stable_attribute, n->attribute, sizeof(n->attribute));
	return 0;
}

/* io_uring */

struct ring {
	unsigned sq_head, cq_head, cq_tail;
	unsigned taken; /* of the queue, and not completed yet */
	struct io_uring_sqe sqes[RING], work[RING];
	struct io_uring_cqe cqes[2 * RING];
};

int sim_soda_uring_begin(struct io_uring *ring, unsigned entries, struct io_uring_params *params)
{
	struct ring *r;

	if (sim_chance(30)) /* a sandbox forbids it */
		return -EPERM;
	if (sim_lacks_descriptor() || entries > RING)
		return -EMFILE;
	r = calloc(1, sizeof(*r));
	*ring = (struct io_uring){ .features = IORING_FEAT_EXT_ARG };
	ring->sq.khead = &r->sq_head;
	ring->sq.sqes = r->sqes;
	ring->sq.ring_ptr = r;
	ring->sq.ring_mask = RING - 1;
	ring->sq.ring_entries = entries;
	ring->cq.khead = &r->cq_head;
	ring->cq.ktail = &r->cq_tail;
	ring->cq.cqes = r->cqes;
	ring->cq.ring_mask = 2 * RING - 1;
	ring->cq.ring_entries = 2 * RING;
	return 0;
}

void sim_soda_uring_end(struct io_uring *ring)
{
	struct ring *r = ring->sq.ring_ptr;

	if (r->taken)
		sim_fail("a queue is closed while %u of its requests are under way", r->taken);
	free(r);
}

/* One of those under way, whichever. */
static void complete_one(struct ring *r)
{
	unsigned i = (unsigned)sim_below(r->taken);
	struct io_uring_sqe sqe = r->work[i];
	ssize_t n = -1;

	errno = EAGAIN;
	if (!sim_chance(3))
		n = move(sqe.fd, (void *)(uintptr_t)sqe.addr, sqe.len, (off_t)sqe.off,
			 sqe.opcode == IORING_OP_WRITE);
	r->work[i] = r->work[--r->taken];
	r->cqes[r->cq_tail % (2 * RING)] =
		(struct io_uring_cqe){ .user_data = sqe.user_data, .res = n < 0 ? -errno : (int)n };
	r->cq_tail++;
}

int sim_io_uring_submit_and_wait(struct io_uring *ring, unsigned wait)
{
	struct ring *r = ring->sq.ring_ptr;
	int n = 0;

	sim_point();
	if (sim_chance(3))
		return -EINTR;
	if (sim_lacks_descriptor())
		return -EAGAIN;
	for (; r->sq_head != ring->sq.sqe_tail && r->taken < RING; n++)
		r->work[r->taken++] = r->sqes[r->sq_head++ % RING];
	if (r->taken)
		complete_one(r);
	while (r->taken && sim_chance(50))
		complete_one(r);
	return n;
}

int sim___io_uring_get_cqe(struct io_uring *ring, struct io_uring_cqe **cqe_p, unsigned submit,
			   unsigned wait, sigset_t *mask)
{
	struct ring *r = ring->sq.ring_ptr;

	if (wait && r->cq_head == r->cq_tail && r->taken)
		complete_one(r);
	*cqe_p = NULL;
	if (r->cq_head == r->cq_tail)
		return -EAGAIN;
	*cqe_p = &r->cqes[r->cq_head % (2 * RING)];
	return 0;
}
