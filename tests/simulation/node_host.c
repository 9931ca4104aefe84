/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host agent's pages: in place of uffd.c, a table that says of each page whether it is
 * there and write-protected. The memory behind it is ordinary memory, and nobody but the
 * functions here looks at a page without asking the table.
 */
#include <errno.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/lock.h"
#include "fibers.h"
#include "host_agent/move/audit.h"
#include "host_agent/life/stats.h"
#include "host_agent/core/thread.h"
#include "host_agent/fault/fault.h"
#include "host_agent/core/agent.h"
#include "host_agent/object/copies.h"
#include "host_agent/object/stripe.h"
#include "host_agent/object/region.h"
#include "host_agent/object/sealing.h"
#include "host_agent/core/link.h"
#include "host_agent/pages/uffd.h"
#include "nodes.h"
#include "sealing/sealing.h"

enum {
	PAGE = 4096,
	PAGES = 1 << 20,
	PRESENT = 1,
	PROTECTED = 2,
	FAILED = 4,
	COVERED = 8, /* by another mapping, of which nothing is there: no business of userfaultfd */
	FAULTS = 64,
	TRIES = 20000,
	MAPPINGS = 32
};

static uint8_t shadow[PAGES] __attribute__((aligned(PAGE)));
static unsigned fails_of_10000, slows_of_10000, drops_fail;
static bool refused; /* a drop: pages are where none should be, and half a chunk is refilled */

/* Handler mode: the descriptor, and the faults that nobody has read yet. */
static int uffd = -1;
static struct uffd_msg faults[FAULTS];
static unsigned faults_n;
/* What the handler has said of the pages that it made fail (an errno); 0: nothing. */
static uint8_t said[PAGES] __attribute__((aligned(PAGE)));

/*
 * Mappings of the node's store: what is there is the file's memory, but for pages in which another
 * mapping was put.
 */
bool sim_host_shares, sim_host_poisons = true, sim_host_agent_seals;
static uint8_t apart[PAGES] __attribute__((aligned(PAGE)));
static struct {
	char *addr; /* NULL: none */
	size_t bytes;
	uint64_t file, at;
} mappings[MAPPINGS];

static bool in_mapping(const void *addr)
{
	for (int i = 0; sim_host_shares && i < MAPPINGS; i++)
		if (mappings[i].addr &&
		    (size_t)((const char *)addr - mappings[i].addr) < mappings[i].bytes)
			return true;
	return false;
}

static uint8_t *page_of(const void *addr)
{
	uint64_t n = (uint64_t)((const char *)addr - soda_agent.base) / PAGE;

	if (!soda_agent_owns(addr) || n >= PAGES)
		sim_fail("%p is no address of an object", addr);
	return &shadow[n];
}

static bool is_shared(const void *addr)
{
	return in_mapping(addr) && !apart[page_of(addr) - shadow];
}

static struct soda_chunk *chunk_at(const void *addr)
{
	return &soda_agent.table[soda_chunk_of(addr)];
}

/* Not a point. */
static uint32_t word_at(const void *addr)
{
	return *(volatile uint32_t *)(void *)&chunk_at(addr)->word;
}

const char *sim_host_chunk(const void *addr)
{
	static const char *const states[16] = { "NONE",	 "ZERO", "REMOTE", "FETCHING", "CLEAN",
						"DIRTY", "BUSY", "LOST",   "SHARED" };
	static char text[64];
	uint32_t w = word_at(addr);

	snprintf(text, sizeof(text), "chunk %u %s %08x page %d", soda_chunk_of(addr),
		 states[soda_chunk_state(w) & 15], w, *page_of(addr));
	return text;
}

const volatile void *sim_host_word(uint32_t chunk)
{
	return &soda_agent.table[chunk].word;
}

void sim_host_pager_fails(unsigned of_10000)
{
	fails_of_10000 = of_10000;
	drops_fail = of_10000 && sim_chance(30) ? of_10000 / 10 + 1 : 0;
}

/* Threads that wait for a page of it look again; what nobody has read of their faults is gone. */
static void wake_range(void *addr, size_t bytes)
{
	unsigned kept = 0;

	if (uffd < 0)
		return;
	for (unsigned i = 0; i < faults_n; i++)
		if (faults[i].arg.pagefault.address - (uintptr_t)addr >= bytes)
			faults[kept++] = faults[i];
	faults_n = kept;
	for (size_t at = 0; at < bytes; at += PAGE)
		sim_wake(page_of((char *)addr + at), SIM_FIBERS);
}

void sim_host_pager_slows(unsigned of_10000)
{
	slows_of_10000 = of_10000;
}

static void take_time(void)
{
	if (slows_of_10000 && sim_below(10000) < slows_of_10000)
		sim_sleep(1 + sim_below(5 * SIM_MS), "the lock of the address space");
}

static bool fails(void)
{
	return fails_of_10000 && sim_below(10000) < fails_of_10000;
}

static void check_range(const char *what, const void *addr, size_t bytes)
{
	if ((uintptr_t)addr % PAGE || bytes % PAGE || !bytes)
		sim_fail("%s of %zu bytes at %p: not whole pages", what, bytes, addr);
}

/* The program is ending: another mapping lies on all of its objects, and nothing is registered. */
static bool all_covered(void)
{
	return soda_agent.life == SODA_LIFE_ENDED;
}

static int pager_copy(void *dst, const void *src, size_t bytes, bool protect)
{
	check_range("copy", dst, bytes);
	take_time();
	for (size_t at = 0; at < bytes; at += PAGE) {
		char *to = (char *)dst + at;
		enum soda_chunk_state s = soda_chunk_state(word_at(to));

		sim_point();
		if (all_covered())
			return -ENOENT;
		if (s != SODA_CHUNK_FETCHING && !(refused && s == SODA_CHUNK_BUSY))
			sim_fail("a page is filled: %s", sim_host_chunk(to));
		if (*page_of(to) & PRESENT)
			continue;
		if (*page_of(to) & COVERED)
			return -ENOENT;
		if (is_shared(to) && sim_memfd_has(to))
			continue; /* it stays, and is not mapped by that */
		if (fails())
			return -ENOMEM;
		sim_spend(1000);
		memcpy(to, (const char *)src + at, PAGE);
		*page_of(to) = PRESENT | (protect ? PROTECTED : 0);
	}
	wake_range(dst, bytes);
	return 0;
}

static int pager_protect(void *addr, size_t bytes, bool on)
{
	check_range("protect", addr, bytes);
	take_time();
	for (size_t at = 0; at < bytes; at += PAGE) {
		char *to = (char *)addr + at;
		enum soda_chunk_state s = soda_chunk_state(word_at(to));

		sim_point();
		if (s != SODA_CHUNK_BUSY && s != SODA_CHUNK_FETCHING)
			sim_fail("a page's protection is changed: %s", sim_host_chunk(to));
		if (*page_of(to) & PRESENT)
			*page_of(to) = PRESENT | (on ? PROTECTED : 0);
	}
	if (!on)
		wake_range(addr, bytes);
	return 0;
}

static int pager_drop(const struct iovec *ranges, int n, size_t *dropped_p)
{
	*dropped_p = 0;
	if (n < 1 || n > 64)
		sim_fail("%d ranges are dropped", n);
	for (int i = 0; i < n; i++) {
		char *base = ranges[i].iov_base;

		check_range("drop", base, ranges[i].iov_len);
		for (size_t at = 0; at < ranges[i].iov_len; at += PAGE) {
			enum soda_chunk_state s = soda_chunk_state(word_at(base + at));

			sim_point();
			if (drops_fail && sim_below(10000) < drops_fail) {
				refused = true;
				return -EINVAL;
			}
			if (is_shared(base + at) && s == SODA_CHUNK_NONE) {
				*page_of(base + at) &= COVERED; /* its object is freed */
				continue;
			}
			if ((s == SODA_CHUNK_CLEAN || s == SODA_CHUNK_DIRTY) ||
			    (s != SODA_CHUNK_BUSY && s != SODA_CHUNK_FETCHING &&
			     !(refused && s == SODA_CHUNK_NONE) && *page_of(base + at) & PRESENT))
				sim_fail("a page is dropped: %s", sim_host_chunk(base + at));
			*page_of(base + at) &= COVERED;
			*dropped_p += PAGE;
		}
	}
	return 0;
}

/* UFFDIO_CONTINUE */
static int pager_map(void *addr, size_t bytes)
{
	check_range("map", addr, bytes);
	take_time();
	for (size_t at = 0; at < bytes; at += PAGE) {
		char *to = (char *)addr + at;
		enum soda_chunk_state s = soda_chunk_state(word_at(to));

		sim_point();
		if (*page_of(to) & COVERED || all_covered())
			return -ENOENT;
		if (!is_shared(to) || (s != SODA_CHUNK_FETCHING && s != SODA_CHUNK_BUSY))
			sim_fail("a page is mapped: %s", sim_host_chunk(to));
		if (*page_of(to))
			continue;
		if (!sim_memfd_has(to))
			return -EFAULT;
		if (fails())
			return -ENOMEM;
		sim_spend(300);
		*page_of(to) = PRESENT;
	}
	wake_range(addr, bytes);
	return 0;
}

static int pager_wake(void *addr, size_t bytes)
{
	sim_point();
	wake_range(addr, bytes);
	return 0;
}

/* As Linux 6.6: a page that is there, or fails already, is left as it is. Wakes nobody. */
static int pager_poison(void *addr, size_t bytes)
{
	check_range("poison", addr, bytes);
	if (!sim_host_poisons) /* an older kernel */
		return -ENOTSUP;
	for (size_t at = 0; at < bytes; at += PAGE) {
		uint8_t *page = page_of((char *)addr + at);

		sim_point();
		if (all_covered())
			return -ENOENT;
		if (*page)
			return *page & COVERED ? -ENOENT : -EEXIST;
		*page = FAILED;
	}
	return 0;
}

/* Another mapping comes there. */
static void forget_mappings(const char *addr, size_t bytes)
{
	for (int i = 0; i < MAPPINGS; i++)
		if (mappings[i].addr >= addr &&
		    mappings[i].addr + mappings[i].bytes <= addr + bytes)
			mappings[i].addr = NULL;
}

void sim_host_share(void *addr, size_t bytes, uint64_t file, uint64_t at)
{
	bool again = in_mapping(addr); /* a page of it was made to fail, and no more */
	int i = 0;

	sim_point();
	while (i < MAPPINGS && mappings[i].addr)
		i++;
	if (i == MAPPINGS)
		sim_fail("the simulation has no room for another mapping");
	for (size_t k = 0; k < bytes; k += PAGE) {
		char *to = (char *)addr + k;

		/* a mapping of one page is forgotten when that page is made to fail */
		if (*page_of(to) & ~COVERED && !again)
			sim_fail("a page gets another mapping: %s", sim_host_chunk(to));
		*page_of(to) = 0;
		apart[page_of(to) - shadow] = 0;
	}
	if (again)
		return;
	mappings[i].addr = addr;
	mappings[i].bytes = bytes;
	mappings[i].file = file;
	mappings[i].at = at;
}

void sim_host_punched(uint64_t file, uint64_t at, uint64_t bytes)
{
	for (int i = 0; i < MAPPINGS; i++)
		for (uint64_t k = at;
		     mappings[i].addr && mappings[i].file == file && k < at + bytes; k += PAGE)
			if (k - mappings[i].at < mappings[i].bytes)
				*page_of(mappings[i].addr + (k - mappings[i].at)) &=
					(uint8_t)~PRESENT;
}

/* All of the addresses, at the start and the end: the kernel's zeros are cheaper than ours. */
static void forget_all(void)
{
	madvise(shadow, sizeof(shadow), MADV_DONTNEED);
	memset(mappings, 0, sizeof(mappings));
}

bool sim_host_map(void *addr, size_t bytes, bool cover)
{
	bool running = soda_agent.life == SODA_LIFE_RUNNING;

	if (!soda_agent_owns(addr))
		return false;
	sim_point();
	if (!running && !cover && addr == soda_agent.base && bytes / PAGE >= PAGES) {
		forget_all();
		return true;
	}
	for (size_t at = 0; at < bytes && at < (size_t)PAGES * PAGE; at += PAGE) {
		char *to = (char *)addr + at;
		enum soda_chunk_state s =
			running && !is_shared(to) ? soda_chunk_state(word_at(to)) : SODA_CHUNK_NONE;

		if (s != SODA_CHUNK_FETCHING && s != SODA_CHUNK_NONE)
			sim_fail("a page gets another mapping: %s", sim_host_chunk(to));
		*page_of(to) = cover ? COVERED : 0;
	}
	forget_mappings(addr, bytes);
	for (size_t at = 0; sim_host_shares && at < bytes && at < (size_t)PAGES * PAGE; at += PAGE)
		apart[page_of((char *)addr + at) - shadow] = in_mapping((char *)addr + at);
	return true;
}

const struct soda_page_ops soda_uffd_page_ops = {
	.copy = pager_copy,
	.protect = pager_protect,
	.drop = pager_drop,
	.wake = pager_wake,
	.poison = pager_poison,
	.map = pager_map,
};

static short uffd_ready(void *arg)
{
	return faults_n ? POLLIN : 0;
}

bool sim_uffd_is(int fd)
{
	return fd == uffd;
}

ssize_t sim_uffd_read(void *out, size_t bytes)
{
	unsigned n = (unsigned)(bytes / sizeof(faults[0]));

	if (!faults_n) {
		errno = EAGAIN;
		return -1;
	}
	n = n < faults_n ? n : faults_n;
	memcpy(out, faults, n * sizeof(faults[0]));
	faults_n -= n;
	memmove(faults, faults + n, faults_n * sizeof(faults[0]));
	return (ssize_t)(n * sizeof(faults[0]));
}

int soda_uffd_open(bool sigbus, bool plain, bool kernel_faults, struct soda_uffd_info *info,
		   struct soda_why *why)
{
	*info = (struct soda_uffd_info){ .fd = -1, .how = "simulation", .minor = sim_host_shares };
	if (!sigbus) {
		uffd = info->fd = sim_fd_new(sim_process(), uffd_ready, NULL);
		info->thread_id = true;
		info->poison = sim_host_poisons;
	}
	return 0;
}

int soda_holder_start(int fd)
{
	return 0;
}

void soda_holder_stop(void)
{
}

int soda_uffd_register_shared(void *addr, size_t bytes)
{
	return 0;
}

int soda_uffd_register(void *addr, size_t bytes)
{
	return 0;
}

void soda_uffd_close(void)
{
	if (uffd >= 0)
		sim_fd_close(uffd);
	uffd = -1;
}

/* What the processor does where the page lets it. */
static bool may_access(uint8_t page, bool store)
{
	return page & PRESENT && !(store && page & PROTECTED);
}

static void access_word(char *addr, bool store, uint64_t *value)
{
	*value += store;
	if (store)
		memcpy(addr, value, sizeof(*value));
	else
		memcpy(value, addr, sizeof(*value));
}

/* link-agent leads the handler's calls here. */
void __real_soda_fault_fail(struct soda_thread *t, const struct soda_fault *f, int err);
void __wrap_soda_fault_fail(struct soda_thread *t, const struct soda_fault *f, int err);

void __wrap_soda_fault_fail(struct soda_thread *t, const struct soda_fault *f, int err)
{
	char *at = (char *)soda_chunk_address(f->id) + ((size_t)f->block << soda_agent.block_shift);

	__real_soda_fault_fail(t, f, err);
	for (size_t i = 0; i < (size_t)1 << soda_agent.block_shift; i += PAGE)
		said[page_of(at + i) - shadow] = (uint8_t)-err;
}

/* Whether it stays so for long: whoever makes a page fail, or undoes it, has its chunk for that. */
static bool on_its_way(const void *addr)
{
	for (int i = 0; i < 1000; i++, sim_point())
		if (soda_chunk_state(word_at(addr)) != SODA_CHUNK_FETCHING)
			return false;
	return true;
}

/* Why a page fails, of which the thread knows no more than that: what was said of it last. */
static int why_failed(const uint8_t *page, enum soda_chunk_state s)
{
	int err = said[page - shadow];

	return s == SODA_CHUNK_LOST ? -EIO : err ? -err : -ETIMEDOUT;
}

/* The thread sleeps in the kernel until somebody wakes those who wait for the page. */
static int touch_and_sleep(char *addr, bool store, uint64_t *value)
{
	for (int i = 0; i < TRIES; i++) {
		uint8_t *page = page_of(addr);
		struct uffd_msg m = { .event = UFFD_EVENT_PAGEFAULT };

		if (may_access(*page, store)) {
			said[page - shadow] = 0;
			access_word(addr, store, value);
			return 0;
		}
		if (*page & (FAILED | COVERED)) {
			enum soda_chunk_state s = soda_chunk_state(word_at(addr));

			if (s == SODA_CHUNK_FETCHING && !on_its_way(addr))
				continue;
			return why_failed(page, s);
		}
		if (faults_n == FAULTS)
			sim_fail("HANG: %u faults, and nobody reads them", faults_n);
		m.arg.pagefault.address = (uintptr_t)addr;
		m.arg.pagefault.flags = (store ? UFFD_PAGEFAULT_FLAG_WRITE : 0) |
					(*page & PROTECTED ? UFFD_PAGEFAULT_FLAG_WP : 0);
		m.arg.pagefault.feat.ptid = (uint32_t)sim_id();
		faults[faults_n++] = m;
		sim_fd_changed();
		sim_wait(page, SIM_NEVER, "a page");
	}
	sim_fail("HANG: a thread was woken %d times in vain: %s", TRIES, sim_host_chunk(addr));
}

static int touch(char *addr, bool store, uint64_t *value)
{
	for (int i = 0; i < TRIES; i++) {
		struct soda_fault f;
		int ret;

		if (may_access(*page_of(addr), store)) {
			access_word(addr, store, value);
			return 0;
		}
		if (!soda_fault_describe(&f, addr, store))
			return -EFAULT;
		ret = soda_fault_serve(soda_thread_self(), &f);
		if (ret)
			return ret;
	}
	sim_fail("HANG: %d faults were served, and none helped: %s", TRIES, sim_host_chunk(addr));
}

int sim_load(const void *addr, uint64_t *value_p)
{
	sim_point();
	return (uffd < 0 ? touch : touch_and_sleep)((char *)(uintptr_t)addr, false, value_p);
}

int sim_store(void *addr, uint64_t *value_p)
{
	sim_point();
	return (uffd < 0 ? touch : touch_and_sleep)(addr, true, value_p);
}

const void *sim_host_page(const void *addr)
{
	return *page_of(addr) & PRESENT ? addr : NULL;
}

bool sim_host_has(const void *addr)
{
	return *page_of(addr) & PRESENT || (is_shared(addr) && sim_memfd_has(addr));
}

void sim_host_check_resident(const void *addr, size_t bytes)
{
	if (!soda_agent_owns(addr))
		return;
	for (size_t at = 0; at < bytes; at += PAGE)
		if (!(*page_of((const char *)addr + at) & PRESENT))
			sim_fail("a page is sent that is not there: %s",
				 sim_host_chunk((const char *)addr + at));
}

static void set_place(struct sim_places *places, unsigned k, const struct soda_region *part,
		      bool current)
{
	places->n = k + 1;
	places->copy[k].server = SIM_SERVER + part->link->index;
	places->copy[k].region = part->id;
	places->copy[k].current = current;
	places->copy[k].refused = part->refused;
}

static bool is_settled(uint32_t w)
{
	enum soda_chunk_state s = soda_chunk_state(w);

	return s == SODA_CHUNK_REMOTE ||
	       (s == SODA_CHUNK_CLEAN && w & SODA_CW_BACKED && !(w & SODA_CW_SENDING));
}

static void set_pieces(struct sim_places *places, const struct soda_region *r)
{
	uint64_t at = places->offset % soda_chunk_bytes();

	places->pieces = r->pieces;
	places->piece_bytes = soda_stripe_piece_bytes(r);
	places->piece = (unsigned)(at / places->piece_bytes);
	places->offset = (places->offset - at) / r->pieces + at % places->piece_bytes;
	for (unsigned k = 0; k < places->n; k++)
		places->copy[k].piece = soda_copy_piece(r, k);
}

/* Their names are those, whoever seals them. */
static bool is_sealed_file(const char *name)
{
	const char *slash = strrchr(name, '/');

	return slash && slash[1] == 's';
}

struct sim_places sim_host_places(const void *addr)
{
	struct sim_places places = { .n = 0, .pieces = 1, .piece_bytes = soda_chunk_bytes() };
	struct soda_region *r;
	uint64_t copies;

	sim_hold(true);
	r = soda_region_of(soda_chunk_of(addr));
	copies = r ? soda_copies(r) : 0;
	for (unsigned k = 0; copies && k < soda_copy_places(r); k++)
		if (r->copy[k])
			set_place(&places, k, r->copy[k], soda_copy_is_current(copies, k));
	if (r && !copies)
		set_place(&places, 0, r, true);
	if (r)
		places.offset = (uint64_t)((const char *)addr - soda_chunk_address(r->first));
	places.block = (uint32_t)(places.offset / PAGE);
	if (r && r->pieces)
		set_pieces(&places, r);
	places.sealed = r && r->sealing;
	places.agent_sealed = r && sim_host_agent_seals && (!r->file || is_sealed_file(r->file));
	places.data_at = r ? r->data_at : 0;
	if (places.agent_sealed && r->file)
		places.data_at = sim_sealed_data_at(r->file);
	places.settled = copies && is_settled(word_at(addr));
	sim_hold(false);
	return places;
}

/* link-agent leads the program's calls of these functions here; nothing else happens meanwhile. */
bool __real_soda_copies_drop(struct soda_region *r, uint32_t k);
void __real_soda_copies_begin(struct soda_region *r, uint32_t k);
bool __real_soda_copies_complete(struct soda_region *r, uint32_t k);
bool __wrap_soda_copies_drop(struct soda_region *r, uint32_t k);
void __wrap_soda_copies_begin(struct soda_region *r, uint32_t k);
bool __wrap_soda_copies_complete(struct soda_region *r, uint32_t k);

static void tell(enum sim_copies_change what, const struct soda_region *r, uint32_t k)
{
	sim_copies_changed(what, soda_chunk_address(r->first), k);
}

bool __wrap_soda_copies_drop(struct soda_region *r, uint32_t k)
{
	bool current, done;

	sim_hold(true);
	current = soda_copy_is_current(soda_copies(r), k);
	done = __real_soda_copies_drop(r, k);
	if (!current)
		tell(SIM_COPY_BROKEN_OFF, r, k);
	else
		tell(done ? SIM_COPY_GIVEN_UP : SIM_COPY_LAST, r, k);
	sim_hold(false);
	return done;
}

void __wrap_soda_copies_begin(struct soda_region *r, uint32_t k)
{
	__real_soda_copies_begin(r, k);
	sim_hold(true);
	tell(SIM_COPY_BEGUN, r, k);
	sim_hold(false);
}

bool __wrap_soda_copies_complete(struct soda_region *r, uint32_t k)
{
	bool done;

	sim_hold(true);
	done = __real_soda_copies_complete(r, k);
	if (done)
		tell(SIM_COPY_COMPLETE, r, k);
	sim_hold(false);
	return done;
}

static char *rebuilding;

int __real_soda_fetch_copy(struct soda_thread *t, struct soda_region *r, uint32_t id, void *to,
			   uint64_t deadline_ns);
int __wrap_soda_fetch_copy(struct soda_thread *t, struct soda_region *r, uint32_t id, void *to,
			   uint64_t deadline_ns);

int __wrap_soda_fetch_copy(struct soda_thread *t, struct soda_region *r, uint32_t id, void *to,
			   uint64_t deadline_ns)
{
	rebuilding = soda_chunk_address(id);
	return __real_soda_fetch_copy(t, r, id, to, deadline_ns);
}

char *sim_host_rebuilding(void)
{
	return rebuilding;
}

static int count_missing(struct soda_region *r, void *arg)
{
	*(uint64_t *)arg += !r->going && soda_copies_missing(r);
	return 0;
}

uint64_t sim_host_missing(void)
{
	uint64_t n = 0;

	sim_hold(true);
	soda_regions_each(count_missing, &n);
	sim_hold(false);
	return n;
}

bool sim_host_may_be_lost(const void *addr)
{
	enum soda_chunk_state s = soda_chunk_state(word_at(addr));

	return s == SODA_CHUNK_LOST || s == SODA_CHUNK_FETCHING;
}

bool sim_host_spoiled(const void *addr)
{
	struct soda_region *r;
	bool spoiled;

	sim_hold(true);
	r = soda_region_of(soda_chunk_of(addr));
	spoiled = r && r->sealed_file && r->sealing && soda_sealing_is_spoiled(r);
	sim_hold(false);
	return spoiled;
}

int sim_host_refused(const void *addr)
{
	struct soda_region *r = soda_region_of(soda_chunk_of(addr));

	return r ? *(volatile int *)(void *)&r->refused : 0;
}

void sim_host_check(bool quiet)
{
	struct soda_why why = { "" };
	int ret;

	if (*(volatile uint32_t *)(void *)&soda_agent.api_lock.word)
		return; /* an object appears, or goes */
	sim_hold(true);
	ret = soda_audit_check(quiet ? SODA_AUDIT_BETWEEN : SODA_AUDIT_ANYWHERE, &why);
	sim_hold(false);
	if (ret)
		sim_fail("INVARIANT: %s", why.text);
}

static int say_object(struct soda_region *r, void *arg)
{
	static const char *const states = "-0RFCDBLS???????";

	printf("  object %u, chunks %u on: ", r->id, r->first);
	for (uint32_t i = 0; i < r->chunks && i < 160; i++) {
		uint32_t w = word_at(soda_chunk_address(r->first + i));

		printf("%c%s%s%s%s", states[soda_chunk_state(w) & 15],
		       w & SODA_CW_PINNED ? "p" : "", w & SODA_CW_HOLD ? "h" : "",
		       w & SODA_CW_QUEUED ? "q" : "", w & SODA_CW_SENDING ? "s" : "");
	}
	putchar('\n');
	return 0;
}

void sim_host_say(void)
{
	const struct soda_buffer *b = &soda_agent.buffer;

	if (soda_agent.life != SODA_LIFE_RUNNING)
		return;
	sim_hold(true);
	printf("the host's buffer: %lld of %lld free, %lld pinned, %lld to be sent\n",
	       (long long)b->free, (long long)b->limit, (long long)b->pinned,
	       (long long)b->sending);
	printf("its places for sealed chunks: %u of %u free\n", soda_sealing_slots_free(),
	       soda_sealing_slots());
	puts("its chunks, Zero Remote Fetching Clean Dirty Busy Lost; pinned held queued sending:");
	soda_regions_each(say_object, NULL);
}

size_t sim_host_stats(char *text, size_t room)
{
	return soda_stats_json(text, room);
}

bool sim_host_token(uint8_t token[SODA_WIRE_TOKEN_BYTES])
{
	const struct soda_client_token *t = &soda_agent.links[0].server.token;

	memcpy(token, t->bytes, SODA_WIRE_TOKEN_BYTES);
	return t->number;
}

uint32_t sim_host_reconnects(void)
{
	return soda_agent.reconnects;
}

struct sim_belief sim_host_believes(enum sim_process server)
{
	const struct soda_link *link = &soda_agent.links[server - SIM_SERVER];
	struct sim_belief b = { .restarts = 0 };

	sim_hold(true);
	b.restarts = soda_link_restarts(link);
	b.up = soda_server_up(&link->server) && !(b.restarts & 1);
	sim_hold(false);
	return b;
}
