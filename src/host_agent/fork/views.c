/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/fork/views.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "host_agent/object/guess.h"
#include "host_agent/object/region.h"

enum {
	VIEWS_MAX = 64,
	SLOTS = 64, /* counters of threads in sections; threads share them */
	BUCKETS = 1 << 14,
	BITS = 64,
};

/* The least that copies may take, and the time that the gate is closed at most. */
static const uint64_t copies_least = 64ull << 20, gate_ns = 1000 * SODA_MS_NS;

struct view {
	uint32_t number;  /* 0: the place is free */
	uint32_t readers; /* processes that may ask */
	bool broken;
	uint64_t *wants; /* a bit for each chunk below `end` */
	uint32_t end;
};

/* Content of a chunk, in the slot of the same index. */
struct copy {
	uint32_t id;
	uint32_t until; /* the youngest view that it serves */
	uint32_t older; /* 1 + the index of the next copy in its bucket; 0: none */
};

/* All guarded by `lock`, but `living`, which is also read without it. */
static struct {
	struct soda_lock lock;
	_Atomic uint32_t living; /* views */
	uint32_t last;		 /* number of the youngest view that ever was */
	struct view views[VIEWS_MAX];
	uint32_t buckets[BUCKETS]; /* 1 + index of the youngest copy */
	struct copy *copies;
	char *slots;
	uint32_t copies_n, copies_max;
	bool told;
} all = { .lock = SODA_LOCK_INIT(SODA_RANK_VIEWS) };

static struct section {
	_Atomic uint32_t threads;
} __attribute__((aligned(64))) sections[SLOTS];
static _Atomic uint32_t gate, late; /* closed; a thread went through while it was */

static const struct soda_page_ops *below;

static void *map(uint64_t bytes)
{
	void *p = (void *)syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0L);

	return p == MAP_FAILED ? NULL : p;
}

static void unmap(void *p, uint64_t bytes)
{
	if (p)
		syscall(SYS_munmap, p, bytes);
}

/* Sections */

static struct section *section_of_thread(void)
{
	static __thread uint32_t slot __attribute__((tls_model("initial-exec")));
	static _Atomic uint32_t next;

	if (!slot)
		slot = 1 + atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % SLOTS;
	return &sections[slot - 1];
}

/* seq_cst throughout: a thread sees the closed gate, or the fork sees the thread. */
static struct section *enter(void)
{
	struct section *s = section_of_thread();
	uint64_t until = 0;

	for (;;) {
		atomic_fetch_add(&s->threads, 1);
		if (!atomic_load(&gate))
			return s;
		if (until && soda_now_ns() > until)
			break;
		atomic_fetch_sub(&s->threads, 1);
		until = until ? until : soda_now_ns() + gate_ns;
		soda_futex_wait(&gate, 1, SODA_MS_NS);
	}
	atomic_store(&late, 1);
	return s;
}

static void leave(struct section *s)
{
	atomic_fetch_sub(&s->threads, 1);
}

static bool drained(void)
{
	for (int i = 0; i < SLOTS; i++)
		if (atomic_load(&sections[i].threads))
			return false;
	return true;
}

static bool close_gate(void)
{
	uint64_t until = soda_now_ns() + gate_ns;
	_Atomic uint32_t nobody = 0;

	atomic_store(&late, 0);
	atomic_store(&gate, 1);
	while (!drained()) {
		if (soda_now_ns() > until)
			return false;
		soda_futex_wait(&nobody, 0, SODA_MS_NS / 20);
	}
	return true;
}

/* Views */

static bool wants(const struct view *v, uint32_t id)
{
	return v->number && !v->broken && id < v->end && v->wants[id / BITS] >> id % BITS & 1;
}

static const struct copy *youngest_locked(uint32_t id)
{
	uint32_t i = all.buckets[id % BUCKETS];

	while (i && all.copies[i - 1].id != id)
		i = all.copies[i - 1].older;
	return i ? &all.copies[i - 1] : NULL;
}

static bool wanted_locked(uint32_t id)
{
	const struct copy *c = youngest_locked(id);
	uint32_t served = c ? c->until : 0;

	for (int i = 0; i < VIEWS_MAX; i++)
		if (all.views[i].number > served && wants(&all.views[i], id))
			return true;
	return false;
}

static struct view *find_locked(uint32_t number)
{
	for (int i = 0; i < VIEWS_MAX; i++)
		if (all.views[i].number == number)
			return &all.views[i];
	return NULL;
}

/* Nobody asks any more. */
static void forget_copies_locked(void)
{
	uint64_t bytes = (uint64_t)all.copies_n << soda_agent.chunk_shift;

	memset(all.buckets, 0, sizeof(all.buckets));
	if (bytes)
		syscall(SYS_madvise, all.slots, bytes, MADV_DONTNEED);
	all.copies_n = 0;
	all.told = false;
}

static void end_locked(struct view *v)
{
	unmap(v->wants, v->end / 8 + 8);
	*v = (struct view){ 0 };
	if (atomic_fetch_sub(&all.living, 1) == 1) {
		soda_guess_rest(false);
		forget_copies_locked();
	}
}

/* Room for copies, once for the life of the process. */
static bool reserve_locked(void)
{
	uint64_t bytes = (uint64_t)atomic_load(&soda_agent.buffer.limit) << soda_agent.chunk_shift;

	if (all.slots)
		return true;
	bytes = bytes < copies_least ? copies_least : bytes;
	all.copies_max = (uint32_t)(bytes >> soda_agent.chunk_shift);
	all.copies = map(all.copies_max * sizeof(*all.copies));
	all.slots = map(bytes);
	if (all.copies && all.slots) {
		madvise(all.slots, bytes, MADV_DONTDUMP);
		return true;
	}
	unmap(all.copies, all.copies_max * sizeof(*all.copies));
	unmap(all.slots, bytes);
	all.copies = NULL;
	all.slots = NULL;
	return false;
}

static int find_end(struct soda_region *r, void *arg)
{
	uint32_t *end = arg;

	if (r->first + r->chunks > *end)
		*end = r->first + r->chunks;
	return 0;
}

/* Chunks that are neither resident, nor zeros, nor lost; one that a thread changes counts. */
static int note_wants(struct soda_region *r, void *arg)
{
	uint64_t *bits = arg;

	for (uint32_t id = r->first; id < r->first + r->chunks; id++)
		switch (soda_chunk_state(soda_chunk_load(&soda_agent.table[id]))) {
		case SODA_CHUNK_REMOTE:
		case SODA_CHUNK_FETCHING:
		case SODA_CHUNK_BUSY:
		case SODA_CHUNK_SHARED:
			bits[id / BITS] |= 1ull << id % BITS;
			break;
		default:
			break;
		}
	return 0;
}

static struct view *begin_locked(void)
{
	struct view *v = find_locked(0);

	if (!v || !reserve_locked())
		return NULL;
	soda_regions_each(find_end, &v->end);
	v->wants = map(v->end / 8 + 8);
	if (!v->wants) {
		v->end = 0;
		return NULL;
	}
	soda_regions_each(note_wants, v->wants);
	v->number = ++all.last;
	v->readers = 1;
	atomic_fetch_add(&all.living, 1);
	soda_guess_rest(true);
	return v;
}

uint32_t soda_views_fork(void)
{
	struct view *v = NULL;

	if (close_gate()) {
		soda_lock_acquire(&all.lock);
		v = begin_locked();
		soda_lock_release(&all.lock);
	}
	return v ? v->number : 0;
}

void soda_views_forked(void)
{
	struct view *v;

	if (atomic_load(&late)) { /* the child may have missed a store */
		soda_lock_acquire(&all.lock);
		v = find_locked(all.last);
		if (v)
			v->broken = true;
		soda_lock_release(&all.lock);
	}
	atomic_store(&gate, 0);
	soda_futex_wake(&gate, INT32_MAX);
}

void soda_views_forget(void)
{
	soda_lock_init(&all.lock, SODA_RANK_VIEWS);
	for (int i = 0; i < VIEWS_MAX; i++)
		unmap(all.views[i].wants, all.views[i].end / 8 + 8);
	unmap(all.slots, (uint64_t)all.copies_max << soda_agent.chunk_shift);
	memset(all.views, 0, sizeof(all.views));
	all.slots = NULL;
	atomic_store(&all.living, 0);
	soda_guess_rest(false);
	atomic_store(&gate, 0);
}

void soda_views_join(uint32_t view)
{
	struct view *v;

	soda_lock_acquire(&all.lock);
	v = find_locked(view);
	if (v)
		v->readers++;
	soda_lock_release(&all.lock);
}

void soda_views_leave(uint32_t view)
{
	struct view *v;

	soda_lock_acquire(&all.lock);
	v = find_locked(view);
	if (v && !--v->readers)
		end_locked(v);
	soda_lock_release(&all.lock);
}

/* Copies */

static void break_locked(uint32_t id)
{
	for (int i = 0; i < VIEWS_MAX; i++)
		if (wants(&all.views[i], id))
			all.views[i].broken = true;
}

static void keep_locked(uint32_t id, const void *content)
{
	const struct soda_region *r = soda_region_of(id);
	uint32_t i = all.copies_n;

	if (i == all.copies_max || !r) {
		break_locked(id);
		return;
	}
	memcpy(all.slots + ((uint64_t)i << soda_agent.chunk_shift), content,
	       soda_region_chunk_bytes(r, id));
	all.copies[i] = (struct copy){ id, all.last, all.buckets[id % BUCKETS] };
	all.buckets[id % BUCKETS] = i + 1;
	all.copies_n = i + 1;
}

bool soda_views_want(uint32_t id)
{
	bool wanted;

	if (!atomic_load(&all.living))
		return false;
	soda_lock_acquire(&all.lock);
	wanted = wanted_locked(id);
	soda_lock_release(&all.lock);
	return wanted;
}

void soda_views_keep(uint32_t id, const void *content)
{
	bool full = false;

	if (!atomic_load(&all.living))
		return;
	soda_lock_acquire(&all.lock);
	if (wanted_locked(id)) {
		full = all.copies_n == all.copies_max && !all.told;
		all.told |= full;
		keep_locked(id, content);
	}
	soda_lock_release(&all.lock);
	if (full)
		soda_log_warning(
			"children of forks cannot read on: this process has stored to more "
			"than %u MiB that they had not read yet; a larger page buffer "
			"keeps more",
			(unsigned)(((uint64_t)all.copies_max << soda_agent.chunk_shift) >> 20));
}

void soda_views_lose(uint32_t id)
{
	soda_lock_acquire(&all.lock);
	if (wanted_locked(id))
		break_locked(id);
	soda_lock_release(&all.lock);
}

/* The oldest copy that is as of the view or younger. */
static const struct copy *copy_for_locked(uint32_t view, uint32_t id)
{
	const struct copy *found = NULL;

	for (uint32_t i = all.buckets[id % BUCKETS]; i; i = all.copies[i - 1].older)
		if (all.copies[i - 1].id == id && all.copies[i - 1].until >= view)
			found = &all.copies[i - 1];
	return found;
}

int soda_views_find(uint32_t view, uint32_t id, uint32_t offset, uint32_t bytes, void *to)
{
	const struct copy *c;
	struct view *v;
	int ret = 0;

	soda_lock_acquire(&all.lock);
	v = find_locked(view);
	c = v ? copy_for_locked(view, id) : NULL;
	if (!v || v->broken) {
		ret = -ENODATA;
	} else if (!wants(v, id)) {
		ret = -EINVAL;
	} else if (c) {
		memcpy(to,
		       all.slots + ((uint64_t)(c - all.copies) << soda_agent.chunk_shift) + offset,
		       bytes);
		ret = 1;
	}
	soda_lock_release(&all.lock);
	return ret;
}

/* Pages */

/* The chunks of the range are about to be open for stores; their content: from `first` on. */
static void keep_range(const char *addr, size_t bytes, const char *first)
{
	uint32_t id = soda_chunk_of(addr), last = soda_chunk_of(addr + bytes - 1);

	for (; id <= last; id++, first += soda_chunk_bytes())
		soda_views_keep(id, first);
}

/* No page of an object that nobody stores to is protected. */
static bool is_read_only(const char *addr)
{
	const struct soda_region *r = soda_region_of(soda_chunk_of(addr));

	return r && r->flags & SODA_READ_ONLY;
}

static int watched_copy(void *dst, const void *src, size_t bytes, bool protect)
{
	struct section *s;
	int ret;

	if (protect || is_read_only(dst))
		return below->copy(dst, src, bytes, protect);
	s = enter();
	if (atomic_load(&all.living))
		keep_range(dst, bytes, src);
	ret = below->copy(dst, src, bytes, protect);
	leave(s);
	return ret;
}

static int watched_protect(void *addr, size_t bytes, bool on)
{
	struct section *s;
	int ret;

	if (on)
		return below->protect(addr, bytes, on);
	s = enter();
	if (atomic_load(&all.living))
		keep_range(addr, bytes, soda_chunk_address(soda_chunk_of(addr)));
	ret = below->protect(addr, bytes, on);
	leave(s);
	return ret;
}

static int watched_drop(const struct iovec *ranges, int n, size_t *dropped_p)
{
	struct section *s = enter();
	int ret = below->drop(ranges, n, dropped_p);

	leave(s);
	return ret;
}

void soda_views_watch(const struct soda_page_ops **ops_p)
{
	static struct soda_page_ops watched;

	below = *ops_p;
	watched = *below;
	watched.copy = watched_copy;
	watched.protect = watched_protect;
	watched.drop = watched_drop;
	*ops_p = &watched;
}
