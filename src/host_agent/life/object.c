/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/life/object.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/failure.h"
#include "base/log.h"
#include "host_agent/core/held.h"
#include "host_agent/core/helper.h"
#include "host_agent/fork/serve.h"
#include "host_agent/life/start.h"
#include "host_agent/move/calls.h"
#include "host_agent/move/evict.h"
#include "host_agent/move/fetch.h"
#include "host_agent/move/kept.h"
#include "host_agent/move/limit.h"
#include "host_agent/move/retire.h"
#include "host_agent/move/writeback.h"
#include "host_agent/object/copies.h"
#include "host_agent/object/guess.h"
#include "host_agent/object/sealing.h"
#include "host_agent/object/stripe.h"
#include "host_agent/object/unacked.h"
#include "host_agent/pages/mapping.h"
#include "host_agent/pages/shared.h"
#include "host_agent/pages/uffd.h"
#include "host_agent/pool/files.h"
#include "host_agent/pool/freeze.h"
#include "host_agent/pool/rebuild.h"
#include "host_agent/pool/recover.h"
#include "pool/pool.h"
#include "soda.h"
#include "wire/sealed_file.h"
#include "wire/wire.h"

/* Flags and advice travel as the program gives them. */
_Static_assert(SODA_READ_ONLY == SODA_WIRE_READ_ONLY && SODA_WRITABLE == SODA_WIRE_WRITABLE &&
		       SODA_PRIVATE == SODA_WIRE_PRIVATE && SODA_CREATE == SODA_WIRE_CREATE &&
		       (int)SODA_REGION_PUBLISHED == (int)SODA_WIRE_PUBLISHED,
	       "flags of soda_alloc_file()");
_Static_assert((int)SODA_STATIC_CACHE == (int)SODA_WIRE_STATIC_CACHE &&
		       (int)SODA_DYNAMIC_CACHE == (int)SODA_WIRE_DYNAMIC_CACHE &&
		       (int)SODA_NO_CACHE == (int)SODA_WIRE_NO_CACHE &&
		       (int)SODA_NORMAL == (int)SODA_WIRE_NORMAL,
	       "advice of soda_advise()");

static const uint64_t reserve_most = 4ull << 40, reserve_least = 1ull << 30;

static struct iovec
	reserved; /* the whole mapping; soda_agent.base is where its aligned part begins */

static void *reserve(uint64_t bytes, int prot)
{
	void *p = mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static int no_addresses(const char *what, struct soda_why *why)
{
	snprintf(
		why->text, sizeof(why->text),
		"no %s: raise the limits of the address space (ulimit -v) and of data (ulimit -d), "
		"and, for a program that locks its memory, that limit, too (ulimit -l)",
		what);
	return -ENOMEM;
}

/*
 * The table of that many bytes, where three times as much is left for others: what is kept of each
 * chunk elsewhere, the page buffer, stacks of threads, and the program's own data.
 */
static void *reserve_table(uint64_t bytes)
{
	void *room = reserve(4 * bytes, PROT_READ | PROT_WRITE);

	if (!room)
		return NULL;
	munmap((char *)room + bytes, 3 * bytes);
	return room;
}

/* A range of that size, and the table of its chunks, which the limit of data counts. */
static bool reserve_range(uint64_t bytes)
{
	const uint64_t granule = 1ull << SODA_GRANULE_SHIFT;
	char *p = reserve(bytes + granule, PROT_NONE);
	void *table;

	if (!p)
		return false;
	table = reserve_table((bytes >> soda_agent.chunk_shift) * sizeof(struct soda_chunk));
	if (!table) {
		munmap(p, bytes + granule);
		return false;
	}
	reserved = (struct iovec){ p, bytes + granule };
	soda_agent.base = (char *)(((uintptr_t)p + granule - 1) & ~(uintptr_t)(granule - 1));
	soda_agent.bytes = bytes;
	soda_agent.table = table;
	return true;
}

/* Reserve the largest range that the limits of the process allow, and the tables for it. */
static int reserve_addresses(struct soda_why *why)
{
	const uint64_t granule = 1ull << SODA_GRANULE_SHIFT;
	uint64_t most = (uint64_t)UINT32_MAX << soda_agent.chunk_shift;
	uint64_t bytes = most < reserve_most ? most & ~(granule - 1) : reserve_most;

	while (bytes >= reserve_least && !reserve_range(bytes))
		bytes /= 2;
	if (bytes < reserve_least)
		return no_addresses("address range of 1 GiB to be had", why);
	if (soda_regions_start(bytes) || soda_guess_start() || soda_unacked_start() ||
	    soda_kept_start())
		return no_addresses("memory for the tables of the chunks", why);
	return 0;
}

int soda_objects_start(struct soda_why *why)
{
	int ret = reserve_addresses(why);

	if (ret)
		return ret;
	munlock(soda_agent.base, soda_agent.bytes); /* mlockall(MCL_FUTURE) may have come before */
	if (soda_mapping_prepare(soda_agent.base, soda_agent.bytes))
		return -errno;
	madvise(soda_agent.table,
		(soda_agent.bytes >> soda_agent.chunk_shift) * sizeof(struct soda_chunk),
		MADV_NOHUGEPAGE);
	ret = soda_uffd_register(soda_agent.base, soda_agent.bytes);
	if (ret)
		snprintf(why->text, sizeof(why->text), "userfaultfd refuses the address range: %s",
			 soda_strerror(ret));
	return ret;
}

static void give_back(void *p, uint64_t bytes)
{
	if (p)
		munmap(p, bytes);
}

void soda_objects_undo(void)
{
	uint64_t chunks = soda_agent.bytes >> soda_agent.chunk_shift;

	soda_agent.bytes = 0; /* first, so that soda_agent_owns() is false */
	give_back(reserved.iov_base, reserved.iov_len);
	give_back(soda_agent.table, chunks * sizeof(struct soda_chunk));
	reserved.iov_base = soda_agent.base = NULL;
	soda_agent.table = NULL;
	soda_regions_undo();
	soda_guess_undo(chunks);
	soda_unacked_undo(chunks);
	soda_kept_undo(chunks);
}

void soda_objects_end(void)
{
	/*
	 * Mapped anew, not just dropped: once userfaultfd is closed dropped pages would be zeros.
	 */
	mmap(soda_agent.base, soda_agent.bytes, PROT_NONE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

enum {
	/* where all members of a pool are away, how often they are looked at */
	MEMBER_LOOK_MS = 20,
	/* where too few are there, how long the others are waited for at least */
	MEMBERS_RETURN_MS = 500,
};

/*
 * Where an object, or a slab, gets its addresses: from the chunk `first` on, which the caller has
 * found to be free, or, not `fixed`, where there is room; and with which redundancy it lies on the
 * servers.
 */
struct site {
	bool of_heap, fixed;
	uint32_t first;
	enum soda_redundancy redundancy;
};

static int no_room(uint64_t bytes, struct soda_why *why)
{
	snprintf(why->text, sizeof(why->text),
		 "no room for %llu bytes in the reserved address range of %llu GiB",
		 (unsigned long long)bytes, (unsigned long long)(soda_agent.bytes >> 30));
	return -ENOMEM;
}

static bool find_site(struct soda_region *r, const struct site *site)
{
	if (!site->fixed)
		return soda_region_find_room(r, site->of_heap);
	r->first = site->first;
	soda_region_count_chunks(r);
	return true;
}

/* Choose addresses for the size that the server has told, and set the chunks' states. */
static int place(struct soda_region *r, const struct site *site, struct soda_why *why)
{
	uint64_t page = SODA_WIRE_PAGE;
	enum soda_chunk_state state = r->flags ? SODA_CHUNK_REMOTE : SODA_CHUNK_ZERO;
	uint32_t set = r->flags ? SODA_CW_BACKED : 0;

	r->span = (r->bytes + page - 1) & ~(page - 1);
	if (r->span < r->bytes || r->span > soda_agent.bytes || !find_site(r, site))
		return no_room(r->bytes, why);
	if (mprotect(soda_chunk_address(r->first), r->span, soda_region_prot(r))) {
		snprintf(why->text, sizeof(why->text),
			 "the kernel gives no memory map: %s (vm.max_map_count)",
			 soda_strerror(errno));
		return -ENOMEM;
	}
	soda_region_occupy(r);
	for (uint32_t i = 0; i < r->chunks; i++)
		soda_chunk_settle(&soda_agent.table[r->first + i], state, 0, set, 0);
	return 0;
}

/* Close the object's region; log a refusal, and say it in *why. */
static void close_region(struct soda_region *r, struct soda_why *why)
{
	struct soda_why said = { "" };
	int ret = soda_calls_close_region(r, &said);

	if (!ret)
		return;
	snprintf(why->text, sizeof(why->text),
		 "%.60s is freed here, but %.60s keeps it until the program ends: %.75s",
		 r->name[0] ? r->name
		 : r->file  ? r->file
			    : "an object",
		 r->link->server.address, said.text[0] ? said.text : soda_strerror(ret));
	soda_log_error("%s", why->text);
}

/* The map, then each of the parts.  at: the object, or its first copy. */
static int ask_for_store(struct soda_region *at, struct soda_shared_memory *memory,
			 struct soda_why *why)
{
	struct soda_wire_stored *got = &memory->stored, again;
	int ret = soda_calls_join_store(at, SODA_WIRE_STORE_MAP, NULL, got, &memory->map_fd, why);

	if (ret)
		return ret;
	if (got->chunk_bytes != soda_chunk_bytes())
		return -EPROTO;
	memory->parts = malloc(got->parts * sizeof(*memory->parts));
	if (!memory->parts)
		return -ENOMEM;
	for (uint16_t i = 0; i < got->parts; i++)
		memory->parts[i] = -1;
	for (uint16_t i = 0; i < got->parts && !ret; i++) {
		ret = soda_calls_join_store(at, i, NULL, &again, &memory->parts[i], why);
		if (!ret && again.member != got->member) /* of another agent */
			ret = -EAGAIN;
	}
	return ret;
}

/*
 * Where it cannot be had the process has copies of its own, as without a store.  at: the object, or
 * its first copy.
 */
static void join_store(struct soda_region *r, struct soda_region *at)
{
	struct soda_shared_memory memory = { .map_fd = -1 };
	struct soda_why why = { "" };
	int ret = -ENOTSUP;

	if (r->flags & SODA_READ_ONLY && soda_agent.uffd.minor &&
	    !soda_agent.settings.trace) /* of pages that the library installs itself */
		ret = ask_for_store(at, &memory, &why);
	if (!ret)
		ret = soda_shared_attach(r, &memory, &why);
	for (uint32_t i = 0; i < r->chunks && !ret; i++)
		soda_chunk_settle(&soda_agent.table[r->first + i], SODA_CHUNK_SHARED, 0, 0, 0);
	if (!ret)
		return;
	soda_shared_close(&memory);
	if (ret != -ENOTSUP)
		soda_log_info("%s is not shared with other programs: %s", r->file,
			      why.text[0] ? why.text : soda_strerror(ret));
}

/* A sealed file, of r->bytes, is not open yet, or not any more. */
static void forget_file(struct soda_region *r)
{
	struct soda_sealed_layout layout;

	soda_sealing_end(r);
	r->data_at = 0;
	r->file_bytes = !soda_sealed_layout(r->bytes, &layout) ? layout.total : 0;
}

static int open_and_place(struct soda_region *r, const struct site *site, struct soda_why *why)
{
	int ret = soda_calls_open_region(r, why);

	if (ret)
		return ret;
	if (r->sealed_file)
		ret = soda_commit_open(r, why);
	ret = ret ? ret : place(r, site, why);
	if (ret)
		close_region(r, &(struct soda_why){ "" });
	else if (!r->sealed_file)
		join_store(r, r);
	return ret;
}

/* Not shown yet: its addresses are needed again. */
static void leave_store(struct soda_region *r)
{
	if (r->shared && soda_shared_detach(r)) {
		soda_log_error("addresses of fabric memory cannot be mapped again; ending the "
			       "process rather than read zeros there");
		abort();
	}
}

/*
 * Show the object to recoveries.  False: since its region was opened a server was met that does not
 * have the region; the object is not shown, and has no addresses.
 */
static bool publish(struct soda_region *r)
{
	bool good;

	soda_regions_lock();
	good = r->meeting == soda_link_meeting(r->link);
	if (good) {
		soda_region_show_locked(r);
	} else {
		leave_store(r);
		mprotect(soda_chunk_address(r->first), r->span, PROT_NONE);
		soda_region_vacate(r);
	}
	soda_regions_unlock();
	return good;
}

static int no_number(struct soda_why *why)
{
	snprintf(why->text, sizeof(why->text), "65534 objects are allocated: free some");
	return -ENOSPC;
}

/*
 * Header and table of a sealed file were being read, and the connection was lost: it comes back.
 * The region, which the server may still have open, is closed first, here or by the keeper: the
 * next OPEN has the same number.
 */
static bool may_open_again(struct soda_region *r, int ret, uint64_t until)
{
	if (!r->sealed_file || !soda_call_lost(ret))
		return false;
	while (soda_now_ns() < until && !soda_server_wait(&r->link->server, until, NULL)) {
		soda_calls_close_late(r->link);
		if (!soda_region_id_is_kept(r->id))
			return true;
		poll(NULL, 0, 1);
	}
	return false;
}

/* On that server. */
static int create(struct soda_link *link, const struct site *site, const char *file, uint64_t bytes,
		  uint32_t flags, struct soda_region **region_p, struct soda_why *why)
{
	uint64_t until = soda_now_ns() + soda_agent.settings.fault_timeout_ms * SODA_MS_NS;
	struct soda_region *r = soda_region_take();
	int ret, refused;

	if (!r)
		return no_number(why);
	r->link = link;
	r->flags = flags & ~(uint32_t)(SODA_REGION_HEAP | SODA_SEALED);
	r->file = file ? strdup(file) : NULL;
	r->sealed_file = file && flags & SODA_SEALED;
	/* one that is too large for all addresses is refused below, by the server that is asked
	 * first */
	refused = !file && flags & SODA_SEALED && bytes <= soda_agent.bytes
			  ? soda_sealing_begin(r, bytes, why)
			  : 0;
	do {
		r->bytes = bytes;
		if (r->sealed_file)
			forget_file(r);
		ret = refused ? refused : open_and_place(r, site, why);
	} while (ret ? may_open_again(r, ret, until) : !publish(r));
	if (ret) {
		soda_sealing_end(r);
		soda_region_put(r);
		return ret;
	}
	atomic_fetch_add(&soda_agent.fam_bytes, r->span);
	*region_p = r;
	return 0;
}

/*
 * The copies of a slab with redundancy, each on another server, whose region is open.  On an error
 * none is.
 */
static int open_copies(struct soda_region *r, struct soda_candidate *members, struct soda_why *why)
{
	uint32_t k = 0;
	int ret = 0, refusal = -ENOTCONN;

	for (; k < r->copies_wanted; k++) {
		ret = soda_copy_open(r, k, members, &refusal, why);
		if (ret)
			break;
	}
	while (ret && k--)
		soda_copy_close(r->copy[k]);
	return ret;
}

/* Show the slab to recoveries, unless a server of a copy has been met that does not have it. */
static bool publish_copies(struct soda_region *r)
{
	bool good = true;

	soda_regions_lock();
	for (uint32_t k = 0; k < r->copies_wanted; k++)
		good = good && r->copy[k]->meeting == soda_link_meeting(r->copy[k]->link);
	if (good) {
		atomic_store(&r->copies, soda_copies_first(r->copies_wanted));
		soda_region_show_locked(r);
	}
	soda_regions_unlock();
	return good;
}

/* Whether those that can be reached lie in as many failure domains as there are copies. */
static int check_domains(const struct soda_candidate *members, const struct soda_code *code,
			 struct soda_why *why)
{
	uint32_t domains = soda_placement_domains(members, soda_members());

	if (domains >= code->members || !soda_code_survives(code))
		return 0;
	snprintf(why->text, sizeof(why->text),
		 "%s needs servers in %u failure domains (--domain), and those lie in %u",
		 code->name, code->members, domains);
	return -ENOSPC;
}

static int open_mirrored(struct soda_region *r, const struct site *site, struct soda_why *why)
{
	struct soda_candidate members[SODA_MEMBERS_MAX];
	int ret;

	soda_members_look(members, soda_members());
	ret = check_domains(members, &soda_codes[site->redundancy], why);
	if (!ret)
		ret = open_copies(r, members, why);
	if (ret)
		return ret;
	ret = place(r, site, why);
	for (uint32_t k = 0; k < r->copies_wanted && !ret; k++)
		soda_copy_fit(r->copy[k], r);
	if (!ret && publish_copies(r))
		return 0;
	if (!ret) {
		mprotect(soda_chunk_address(r->first), r->span, PROT_NONE);
		soda_region_vacate(r);
	}
	for (uint32_t k = 0; k < r->copies_wanted; k++)
		soda_copy_close(r->copy[k]);
	return ret ? ret : -ECONNRESET;
}

/* A slab with copies. */
static int create_mirrored(const struct site *site, uint64_t bytes, uint32_t flags,
			   struct soda_region **region_p, struct soda_why *why)
{
	const struct soda_code *code = &soda_codes[site->redundancy];
	struct soda_region *r = soda_region_take();
	int ret;

	if (!r)
		return no_number(why);
	r->bytes = bytes;
	r->flags = flags & ~(uint32_t)(SODA_REGION_HEAP | SODA_SEALED);
	r->copies_wanted = code->members;
	r->pieces = code->pieces;
	r->parities = code->pieces ? (uint8_t)(code->members - code->pieces) : 0;
	ret = flags & SODA_SEALED ? soda_sealing_begin(r, bytes, why) : 0;
	if (!ret)
		ret = open_mirrored(r, site, why);
	if (ret) {
		soda_sealing_end(r);
		soda_region_put(r);
		return ret;
	}
	atomic_fetch_add(&soda_agent.fam_bytes, r->span);
	*region_p = r;
	return 0;
}

/* Place a slab on one of the servers. The last refusal, where all refuse. */
static int create_slab(const struct site *site, uint64_t bytes, uint32_t flags,
		       struct soda_region **region_p, struct soda_why *why)
{
	struct soda_candidate members[SODA_MEMBERS_MAX];
	uint32_t n = soda_members();
	int ret = -ENOTCONN;

	if (site->redundancy != SODA_REDUNDANCY_NONE)
		return create_mirrored(site, bytes, flags, region_p, why);
	soda_members_look(members, n);
	for (;;) {
		int i = soda_placement_choose(members, n, bytes,
					      soda_now_ns() * 0x9e3779b97f4a7c15u);

		if (i < 0)
			return ret;
		ret = create(&soda_agent.links[i], site, NULL, bytes, flags, region_p, why);
		if (!ret) {
			soda_link_took(&soda_agent.links[i], (*region_p)->span);
			return 0;
		}
		members[i].refused = true;
	}
}

/* Say what the servers have of what was asked for. */
static int explain_full(uint64_t bytes, uint64_t placed, enum soda_redundancy redundancy, int err,
			struct soda_why *why)
{
	struct soda_why last = *why;
	uint64_t had = 0;
	uint32_t up = 0;
	char how[32] = "";

	for (uint32_t i = 0; i < soda_members(); i++)
		if (soda_server_up(&soda_agent.links[i].server)) {
			had += atomic_load(&soda_agent.links[i].free_bytes);
			up++;
		}
	if (redundancy == SODA_REDUNDANCY_MIRROR)
		snprintf(how, sizeof(how), "on two servers each ");
	else if (redundancy != SODA_REDUNDANCY_NONE)
		snprintf(how, sizeof(how), "with %s ", soda_codes[redundancy].name);
	snprintf(why->text, sizeof(why->text),
		 "%llu bytes %sare not to be had: %u of the pool's %u servers can be reached, and "
		 "have %llu bytes free in all: %.100s",
		 (unsigned long long)bytes, how, up, soda_members(),
		 (unsigned long long)(had + placed), last.text[0] ? last.text : soda_strerror(err));
	return err;
}

/* Append the slabs of an object to *first_p, which begins at `site`, one after the other. */
static int create_slabs(struct site *site, uint64_t bytes, uint32_t flags,
			struct soda_region **first_p, uint64_t *placed_p, struct soda_why *why)
{
	const uint64_t unit = 1ull << SODA_GRANULE_SHIFT;
	uint64_t most = soda_agent.settings.slab_bytes;
	struct soda_region *slab, **to = first_p;
	uint64_t refused = 0, size;
	int ret = -ENOSPC;

	for (*placed_p = 0; *placed_p < bytes;) {
		size = soda_placement_slab(bytes - *placed_p, most, refused, unit);
		if (!size)
			return ret;
		ret = create_slab(site, size, flags, &slab, why);
		if (ret && soda_connection_lost(ret))
			return ret;
		refused = ret ? size : 0;
		if (ret)
			continue;
		most = size > unit ? (size + unit - 1) / unit * unit : unit;
		slab->before = *placed_p;
		slab->continues = *placed_p;
		*to = slab;
		to = &slab->rest;
		*placed_p += size;
		site->first += slab->chunks;
	}
	return 0;
}

/* How often the members have lost their connections, in all. */
static uint64_t members_breaks(void)
{
	uint64_t breaks = 0;

	for (uint32_t i = 0; i < soda_members(); i++)
		breaks += soda_server_breaks(&soda_agent.links[i].server);
	return breaks;
}

static uint32_t members_up(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < soda_members(); i++)
		n += soda_server_up(&soda_agent.links[i].server);
	return n;
}

/* Where all members are away nobody can say what they have: wait for one. */
static void await_any_member(uint64_t until)
{
	uint64_t now, moment;

	for (now = soda_now_ns(); !members_up() && now < until; now = soda_now_ns()) {
		moment = now + MEMBER_LOOK_MS * SODA_MS_NS;
		soda_server_wait(&soda_agent.links[0].server, moment < until ? moment : until,
				 NULL);
	}
}

/* Whether no more is to be learnt of a member: it is up, or cannot be reached. */
static bool member_is_settled(const struct soda_link *link)
{
	return soda_server_up(&link->server) || atomic_load(&link->gone);
}

/*
 * Whether more of them are up than there were.  Those of an agent that was started anew come back
 * one after the other: each gets a moment, and with redundancy until one more attempt has failed
 * after its copies were given up.
 */
static bool await_more_members(uint32_t were, uint64_t until)
{
	uint64_t moment = soda_now_ns() + MEMBERS_RETURN_MS * SODA_MS_NS, look;

	if (were == soda_members())
		return false;
	for (uint32_t i = 0; i < soda_members(); i++) {
		struct soda_link *link = &soda_agent.links[i];

		soda_server_wait(&link->server, moment < until ? moment : until, NULL);
		while (soda_redundant() && !member_is_settled(link) && soda_now_ns() < until) {
			look = soda_now_ns() + MEMBER_LOOK_MS * SODA_MS_NS;
			soda_server_wait(&link->server, look < until ? look : until, NULL);
		}
	}
	return members_up() > were;
}

/*
 * All of an anonymous object, in slabs, or nothing.  What is refused while members are away, or
 * lose their connections, is tried anew, as with one server, for the time of a fault.
 */
static int create_on_pool(struct site site, uint64_t bytes, uint32_t flags,
			  struct soda_region **region_p, struct soda_why *why)
{
	uint64_t until = soda_now_ns() + soda_agent.settings.fault_timeout_ms * SODA_MS_NS;
	struct soda_region room = { .span = bytes }, *first = NULL;
	struct soda_why ignored = { "" };
	uint64_t placed, breaks;
	uint32_t were;
	int ret;

	ret = site.redundancy != SODA_REDUNDANCY_NONE ? soda_rebuild_start() : 0;
	if (!ret && soda_codes[site.redundancy].pieces)
		ret = soda_stripes_start();
	if (ret)
		return ret;
	if (bytes > soda_agent.bytes || !soda_region_find_room(&room, site.of_heap))
		return no_room(bytes, why);
	site.fixed = true;
	do {
		site.first = room.first;
		await_any_member(until);
		breaks = members_breaks();
		were = members_up();
		first = NULL;
		ret = create_slabs(&site, bytes, flags, &first, &placed, why);
		if (!ret) {
			*region_p = first;
			return 0;
		}
		explain_full(bytes, placed, site.redundancy, ret, why);
		if (first)
			soda_object_destroy(first, &ignored);
	} while (soda_now_ns() < until &&
		 (breaks != members_breaks() || await_more_members(were, until)));
	return ret;
}

/* Files on a pool. */

static void say_nobody(const char *file, int err, struct soda_why *why)
{
	struct soda_why last = *why;

	snprintf(why->text, sizeof(why->text),
		 "%.60s: none of the pool's %u servers has it: %.130s", file, soda_members(),
		 last.text[0] ? last.text : soda_strerror(err));
}

/*
 * Whether the server that has refused an OPEN with err has no such file; one that is drained takes
 * nothing new, but says it.
 */
static bool lacks_file(struct soda_link *link, const char *file, uint32_t flags, int err)
{
	struct soda_region like = { .flags = flags, .file = (char *)(uintptr_t)file };
	struct soda_why ignored = { "" };

	return soda_files_lacks(err) ||
	       (err == -ESHUTDOWN && soda_files_lacks(soda_files_look(&like, link, &ignored)));
}

/* A file that no server has: on the one with most free memory that may make it. */
static int create_new_file(const struct site *site, const char *file, uint64_t bytes,
			   uint32_t flags, struct soda_region **region_p, struct soda_why *why)
{
	struct soda_candidate members[SODA_MEMBERS_MAX];
	uint32_t n = soda_members();
	int ret = -ENOENT;

	soda_members_look(members, n);
	for (;;) {
		uint32_t best = n;

		for (uint32_t i = 0; i < n; i++)
			if (!members[i].refused &&
			    (best == n || members[i].free_bytes > members[best].free_bytes))
				best = i;
		if (best == n)
			return ret;
		members[best].refused = true;
		ret = create(&soda_agent.links[best], site, file, bytes, flags, region_p, why);
		if (!soda_files_lacks(ret) && ret != -ESHUTDOWN)
			return ret;
	}
}

/*
 * WRITABLE or PRIVATE: on the first server of the list that has the file.  One that is away may
 * have it, and what a later one has under the name may be another file: it is waited for.
 */
static int create_on_its_server(const struct site *site, const char *file, uint64_t bytes,
				uint32_t flags, struct soda_region **region_p, struct soda_why *why)
{
	int ret = -ENOENT;

	for (uint32_t i = 0; i < soda_members(); i++) {
		struct soda_link *link = &soda_agent.links[i];

		ret = create(link, site, file, bytes, flags & ~(uint32_t)SODA_CREATE, region_p,
			     why);
		if (!ret)
			soda_link_took(link, (*region_p)->span);
		if (!ret || !lacks_file(link, file, flags, ret))
			return ret;
	}
	if (flags & SODA_CREATE)
		ret = create_new_file(site, file, bytes, flags, region_p, why);
	if (!ret)
		soda_link_took((*region_p)->link, (*region_p)->span);
	else if (soda_files_lacks(ret))
		say_nobody(file, ret, why);
	return ret;
}

/* Header and table are read from the file's first copy. */
static int read_sealed(struct soda_region *r, struct soda_why *why)
{
	struct soda_region *copy = r->copy[0];
	int ret;

	r->mr = copy->mr;
	r->meeting = copy->meeting;
	ret = soda_commit_open(r, why);
	memset(&r->mr, 0, sizeof(r->mr)); /* it is the copy's */
	copy->bytes = r->bytes;
	copy->file_bytes = r->file_bytes;
	return ret;
}

/* Show the file, unless the server of its copy has started anew, and does not have it. */
static bool publish_file(struct soda_region *r)
{
	bool good;

	soda_regions_lock();
	good = r->copy[0]->meeting == soda_link_meeting(r->copy[0]->link);
	if (good) {
		atomic_store(&r->copies, soda_copies_first(1));
		soda_region_show_locked(r);
	}
	soda_regions_unlock();
	return good;
}

static int open_copied(struct soda_region *r, const struct site *site, struct soda_why *why)
{
	int ret = soda_files_open(r, why);

	if (ret)
		return ret;
	ret = r->sealed_file ? read_sealed(r, why) : 0;
	if (!ret)
		ret = place(r, site, why);
	if (!ret) {
		soda_copy_fit(r->copy[0], r);
		if (!r->sealed_file)
			join_store(r, r->copy[0]);
		if (publish_file(r))
			return 0;
		leave_store(r);
		mprotect(soda_chunk_address(r->first), r->span, PROT_NONE);
		soda_region_vacate(r);
		ret = -ECONNRESET;
	}
	soda_copy_close(r->copy[0]);
	return ret;
}

/* READ_ONLY: with a copy on each of so many servers as the redundancy needs. */
static int create_copied(const struct site *site, const char *file, uint64_t bytes, uint32_t flags,
			 struct soda_region **region_p, struct soda_why *why)
{
	struct soda_region *r;
	int ret = soda_files_start();

	if (ret)
		return ret;
	r = soda_region_take();
	if (!r)
		return no_number(why);
	r->flags = flags & ~(uint32_t)SODA_SEALED;
	r->bytes = bytes;
	r->file = strdup(file);
	r->copies_wanted = soda_code_survives(&soda_codes[site->redundancy]) ? SODA_COPIES : 1;
	r->sealed_file = flags & SODA_SEALED;
	if (r->sealed_file)
		forget_file(r);
	ret = r->file ? open_copied(r, site, why) : -ENOMEM;
	if (ret) {
		if (soda_files_lacks(ret))
			say_nobody(file, ret, why);
		soda_sealing_end(r);
		soda_files_forget(r);
		soda_region_put(r);
		return ret;
	}
	atomic_fetch_add(&soda_agent.fam_bytes, r->span);
	*region_p = r;
	return 0;
}

static int create_file_on_pool(const struct site *site, const char *file, uint64_t bytes,
			       uint32_t flags, struct soda_region **region_p, struct soda_why *why)
{
	if (flags & SODA_REGION_PUBLISHED) {
		snprintf(why->text, sizeof(why->text),
			 "%.60s: published objects lie on one server, and SODA_SERVER names a "
			 "pool of %u: a program that uses them names the one that has them",
			 file, soda_members());
		return -ENOTSUP;
	}
	return flags & SODA_READ_ONLY
		       ? create_copied(site, file, bytes, flags, region_p, why)
		       : create_on_its_server(site, file, bytes, flags, region_p, why);
}

/* One place for a sealed chunk, with a credit that may have to be evicted for. */
static int add_place(struct soda_why *why)
{
	struct soda_thread *t = soda_thread_self();
	uint64_t until = soda_now_ns() + soda_agent.settings.fault_timeout_ms * SODA_MS_NS;

	if (t && !soda_evict_credit(t, until)) {
		soda_sealing_slot_add();
		return 0;
	}
	snprintf(why->text, sizeof(why->text),
		 "the page buffer (SODA_BUFFER) has no room for sealed chunks that are sent");
	return -ENOMEM;
}

int soda_object_seals(struct soda_why *why)
{
	int64_t limit = atomic_load(&soda_agent.buffer.limit);
	int64_t pinned = atomic_load(&soda_agent.buffer.pinned);
	/* without pins every chunk can make room, and the minimum is enough, as at the start */
	int64_t least = pinned ? pinned + soda_limit_unpinned()
			       : soda_limit_minimum(soda_agent.settings.threads);
	sigset_t saved;
	int ret = 0;

	if (soda_sealing_on())
		return 0;
	least += soda_agent.settings.seal ? 0 : SODA_SEALING_SLOTS_MIN;
	if (limit < least) {
		snprintf(why->text, sizeof(why->text),
			 "sealed objects, and what is pinned, need a page buffer (SODA_BUFFER) of "
			 "%llu bytes or more: it has %llu",
			 (unsigned long long)least << soda_agent.chunk_shift,
			 (unsigned long long)limit << soda_agent.chunk_shift);
		return -ENOMEM;
	}
	/* The places first: once sealing is on nothing is sent without them, nor evicted for them.
	 */
	soda_signals_block(&saved);
	for (int i = 0; i < SODA_SEALING_SLOTS_MIN && !ret; i++)
		ret = add_place(why);
	soda_signals_restore(&saved);
	ret = ret ? ret : soda_sealing_start(soda_channels_pairs(), why);
	if (ret)
		soda_sealing_slots_remove();
	return ret;
}

/* Whether the object is to be sealed: adds that to the flags. What cannot be sealed is refused. */
static int decide_sealing(const char *file, uint32_t *flags, struct soda_why *why)
{
	const struct soda_sealed_key *key;
	int ret;

	if (soda_agent.settings.seal)
		*flags |= SODA_SEALED;
	if (!(*flags & SODA_SEALED))
		return 0;
	if (*flags & (SODA_PRIVATE | SODA_REGION_PUBLISHED)) {
		snprintf(why->text, sizeof(why->text),
			 "%.60s: published objects, and files that are opened PRIVATE, cannot be "
			 "sealed, and sealing (SODA_SEAL) is on: use them in a program that runs "
			 "without it",
			 file);
		return -ENOTSUP;
	}
	ret = file ? soda_sealing_file_key(&key, why) : 0;
	return ret ? ret : soda_object_seals(why);
}

static uint32_t flags_of(const struct soda_code *code)
{
	return code->pieces	   ? SODA_EC(code->pieces, code->members - code->pieces)
	       : code->members > 1 ? SODA_MIRROR(code->members)
				   : SODA_NO_REDUNDANCY;
}

/*
 * What redundancy the object is to have: the flags', else that of SODA_REDUNDANCY.  The flags have
 * no such bits then.
 */
static int decide_redundancy(uint32_t *flags, enum soda_redundancy *redundancy_p,
			     struct soda_why *why)
{
	uint32_t wanted = *flags & SODA_OBJECT_REDUNDANCY;
	enum soda_redundancy r = SODA_REDUNDANCY_NONE;
	struct soda_conf_error err;
	int ret;

	*flags &= ~(uint32_t)SODA_OBJECT_REDUNDANCY;
	*redundancy_p = soda_agent.settings.redundancy;
	if (!wanted)
		return 0;
	while (r < SODA_REDUNDANCIES && wanted != flags_of(&soda_codes[r]))
		r++;
	if (r == SODA_REDUNDANCIES) {
		snprintf(why->text, sizeof(why->text),
			 "soda_alloc: flags 0x%x: of SODA_NO_REDUNDANCY, SODA_MIRROR(%d), "
			 "SODA_EC(k, m) and SODA_STRIPE(k), k 2, 4 or 8 and m 1 or 2, at most one, "
			 "and nothing else",
			 wanted, SODA_COPIES);
		return -EINVAL;
	}
	ret = soda_code_check(&soda_codes[r], soda_members(), soda_chunk_bytes(), "soda_alloc",
			      &err);
	if (ret)
		snprintf(why->text, sizeof(why->text), "%s", err.text);
	else
		*redundancy_p = r;
	return ret;
}

int soda_object_create(const char *file, uint64_t bytes, uint32_t flags,
		       struct soda_region **region_p, struct soda_why *why)
{
	struct site site = { .of_heap = flags & SODA_REGION_HEAP };
	int ret = decide_redundancy(&flags, &site.redundancy, why);

	if (!ret)
		ret = decide_sealing(file, &flags, why);
	if (ret)
		return ret;
	if (soda_members() <= 1 || (file && soda_agent.settings.alone))
		return create(&soda_agent.links[0], &site, file, bytes, flags, region_p, why);
	return file ? create_file_on_pool(&site, file, bytes, flags, region_p, why)
		    : create_on_pool(site, bytes, flags, region_p, why);
}

int soda_object_create_locked(const char *file, size_t bytes, unsigned flags,
			      struct soda_region **region_p, struct soda_why *why)
{
	bool first = atomic_load(&soda_agent.fam_bytes) == 0;
	int ret = soda_agent_start(NULL, why);

	if (!ret)
		ret = soda_object_create(file, bytes, flags, region_p, why);
	if (!ret)
		soda_limit_resize(first);
	return ret;
}

static void destroy(struct soda_region *r, struct soda_why *why)
{
	char *base = soda_chunk_address(r->first);
	uint64_t page = SODA_WIRE_PAGE;
	uintptr_t entries = ((uintptr_t)&soda_agent.table[r->first] + page - 1) & ~(page - 1);
	uintptr_t end = (uintptr_t)&soda_agent.table[r->first + r->chunks] & ~(page - 1);
	int kept; /* not 0: no other object may be placed at these addresses */

	soda_rebuild_leave(r);
	soda_files_leave(r);
	soda_freeze_end(r);
	soda_forks_keep(r->first, r->chunks);
	kept = soda_retire_range(r->first, r->chunks);
	if (kept == -ETIMEDOUT) {
		soda_log_error(
			"%llu bytes of fabric memory cannot be freed: a part of them has been in "
			"use for longer than a fault and a reconnection may take",
			(unsigned long long)r->bytes);
		return;
	}
	soda_held_forget(r->first, r->chunks);
	soda_threads_forget(r->first, r->chunks);
	soda_regions_lock();
	r->going = true;
	soda_regions_unlock();
	mprotect(base, r->span, PROT_NONE);
	if (r->shared)
		kept = soda_shared_detach(r) ? -ENOMEM : kept;
	else if (soda_mapping_any_failing() && soda_mapping_anew(base, r->span, PROT_NONE))
		kept = -ENOMEM;
	if (soda_copies(r)) {
		for (uint32_t k = 0; k < SODA_COPY_PLACES; k++)
			if (r->copy[k])
				soda_copy_close(r->copy[k]);
	} else {
		close_region(r, why);
		soda_link_gave(r->link, r->span);
	}
	atomic_fetch_sub(&soda_agent.fam_bytes, r->span);
	soda_regions_lock();
	soda_recover_forget(r->first, r->chunks);
	soda_region_hide_locked(r, kept);
	soda_regions_unlock();
	if (entries < end) /* whole pages of the table with entries of this object alone */
		madvise((void *)entries, end - entries, MADV_DONTNEED);
	soda_guess_forget(r->first, r->chunks);
	soda_unacked_forget(r->first, r->chunks);
	soda_sealing_end(r);
	soda_files_forget(r);
	soda_region_put(r);
}

void soda_object_destroy(struct soda_region *r, struct soda_why *why)
{
	while (r->rest) {
		struct soda_region *next = r->rest;

		r->rest = next->rest;
		destroy(next, why);
	}
	destroy(r, why);
}
