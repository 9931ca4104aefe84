/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Another client, which speaks the contract itself: a tool that asks for statistics, or a client
 * with regions of its own, of the server or of the agent. It makes mistakes that the application
 * never makes, and sees nothing of what others store.
 *
 * Where the agent has a store for the node it is also a program of the application's user, and
 * reads file f0 from there as pages/shared.c does, with one thread.
 */
#define SODA_SIMULATION /* rings as long as the programs' own */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/log.h"
#include "disk.h"
#include "net.h"
#include "soda.h"
#include "transport/api/transport.h"
#include "trust/identity.h"
#include "trust/tenants.h"
#include "wire/store_map.h"
#include "world.h"

enum { PAGE = SODA_WIRE_PAGE, PAGES = 48, PATIENCE_MS = 8000 };

static struct {
	bool agent, tool, stores;
	struct soda_conn *control, *data;
	struct soda_wire_welcome welcome;
	struct soda_mr mr;
	bool open;
	const char *file; /* its region's; NULL: anonymous */
	uint64_t bytes;
	uint64_t stored[PAGES], number;
	uint8_t *reply;
	uint64_t began;
	struct soda_identity *identity; /* a tenant's; NULL: there are none there */
	uint8_t client_key[SODA_KEY_BYTES];
} me;

static enum sim_process peer(void)
{
	return me.agent ? SIM_AGENT : SIM_SERVER;
}

/* Who it is there. */
static void identify(void)
{
	const char *key = plan.same_tenant ? SIM_TENANT_KEY_HOST : SIM_TENANT_KEY_OTHER;
	struct soda_conf_error err = { "" };
	char name[32];

	soda_identity_free(me.identity);
	me.identity = NULL;
	if (sim_tenants_has(peer()) &&
	    soda_identity_load(NULL, sim_private_name(key, name), NULL, sim_net_address(peer()),
			       &me.identity, &err))
		sim_fail("another client has no key: %s", err.text);
}

/* What a fault may have a server say: it is not for want of sense in the request. */
static bool may_fail(int ret)
{
	return soda_call_lost(ret) || ret == -ENOMEM || ret == -EIO || ret == -ECONNREFUSED ||
	       ret == -ESTALE;
}

/* To a tenant that is none any more, or that was none when the client came. */
static bool may_be_removed(int ret)
{
	return ret == -EACCES || ret == -EPERM || may_fail(ret);
}

/* 0: it is as expected. Else the visit is over: a fault explains it, or nothing does. */
static int expect(const char *what, int ret, int wanted)
{
	sim_note("neighbour: %s: %d", what, ret);
	if (ret == wanted)
		return 0;
	if (ret == -ENOSPC || ret == -EDQUOT || ret == -ESHUTDOWN)
		return ret;
	if (ret && may_be_removed(ret) && sim_tenants_any_removed(me.began))
		return ret;
	if (ret && !may_fail(ret))
		sim_fail("WRONG CODE: %s of another client: %s, not %s", what, soda_strerror(ret),
			 soda_strerror(wanted));
	if (!ret)
		sim_fail("WRONG CODE: %s of another client is not refused", what);
	/* A process that ends, or is not there, may take longer than its end excuses. */
	if (ret != -ECONNREFUSED)
		sim_model_excuse(what, ret, me.began);
	return ret;
}

static int call(enum soda_msg type, const void *body, size_t bytes, size_t *reply_p)
{
	struct iovec iov = { (void *)(uintptr_t)body, bytes };
	struct soda_why why = { "" };

	me.began = sim_now();
	return soda_conn_call(me.control, type, &iov, 1, me.reply, SODA_WIRE_MAX_CONTROL, reply_p,
			      PATIENCE_MS, &why);
}

static int connect_one(enum soda_conn_kind kind, struct soda_conn **conn_p)
{
	struct soda_wire_hello hello = { .magic = SODA_WIRE_MAGIC,
					 .version = SODA_WIRE_VERSION,
					 .chunk_bytes = me.tool	    ? 0
							: me.stores ? plan.chunk_bytes
								    : PAGE,
					 .uid = me.stores ? SIM_DISK_USER : 1001,
					 .gid = me.stores ? SIM_DISK_USER : 1001,
					 .pid = 4712,
					 .epoch = 1 };
	struct soda_conn_options opt = { .kind = kind,
					 .depth = 8,
					 .timeout_ms = PATIENCE_MS,
					 .identity = me.identity,
					 .client_key = me.client_key };
	struct soda_wire_welcome ignored;
	struct soda_why why = { "" };
	bool control = kind == SODA_CONN_CONTROL;
	int ret;

	if (!control) {
		hello.client_id = me.welcome.client_id;
		hello.secret = me.welcome.secret;
	}
	me.began = sim_now();
	ret = soda_conn_connect(sim_net_address(peer()), &hello, &opt, conn_p,
				control ? &me.welcome : &ignored, &why);
	if (!ret && sim_tenants_removed_at(sim_tenants_other(), peer(), me.began))
		sim_fail("TRESPASS: a tenant that was removed is let in");
	return ret;
}

static int ping(void)
{
	uint8_t body[40];
	size_t bytes = 0;
	int ret;

	for (size_t i = 0; i < sizeof(body); i++)
		body[i] = (uint8_t)sim_random();
	ret = expect("PING", call(SODA_MSG_PING, body, sizeof(body), &bytes), 0);
	if (!ret && (bytes != sizeof(body) || memcmp(body, me.reply, bytes)))
		sim_fail("WRONG BYTES: a PING is answered with something else");
	return ret;
}

/* The statistics are JSON, and what they count is not more than there is. */
static int ask_stats(void)
{
	size_t bytes = 0;
	int ret = expect("STATS", call(SODA_MSG_STATS, NULL, 0, &bytes), 0);
	json_t *all = ret ? NULL : json_loadb((const char *)me.reply, bytes, 0, NULL);
	json_t *used = json_object_get(all, "used_bytes");

	if (!ret && !json_is_object(all))
		sim_fail("WRONG BYTES: statistics that are no JSON: %.*s", (int)bytes,
			 (const char *)me.reply);
	if (!ret && !me.agent &&
	    (!used || (uint64_t)json_integer_value(used) > plan.server.capacity))
		sim_fail("INVARIANT: the server says that more is used than it has");
	json_decref(all);
	return ret;
}

static int list(void)
{
	static const uint8_t from[2];
	struct soda_wire_listed entry;
	size_t bytes = 0;
	bool refused = me.agent && me.tool; /* the agent has no server for a tool */
	int ret = expect("LIST", call(SODA_MSG_LIST, from, sizeof(from), &bytes),
			 refused ? -EPROTO : 0);

	if (ret || refused)
		return ret;
	if (bytes != (me.open ? SODA_WIRE_LISTED_BYTES : 0))
		sim_fail("INVARIANT: a LIST of %zu bytes", bytes);
	if (me.open)
		soda_wire_get_listed(me.reply, &entry);
	if (me.open && (entry.region_id != me.mr.region_id || entry.bytes != me.bytes))
		sim_fail("INVARIANT: LIST tells of another region");
	return 0;
}

static int open_region(void)
{
	/* None of the host's. A table is walked to the highest number that it ever had. */
	struct soda_wire_open open = { .region_id = (uint16_t)sim_between(300, sim_chance(5) ? 65535
											     : 600),
				       .bytes = sim_between(1, PAGES) * PAGE };
	struct soda_wire_opened opened;
	struct soda_why why = { "" };
	int ret;

	if (me.open || me.tool)
		return 0;
	me.began = sim_now();
	ret = expect(
		"OPEN",
		soda_conn_open_region(me.control, &open, "", &opened, &me.mr, PATIENCE_MS, &why),
		0);
	if (!ret && opened.bytes != open.bytes)
		sim_fail("INVARIANT: a region of another size");
	me.open = !ret;
	me.file = NULL;
	me.bytes = opened.bytes;
	memset(me.stored, 0, sizeof(me.stored));
	return ret;
}

/* By way of the agent: what that may have. */
static bool may_have_files(void)
{
	return me.agent || !plan.server.tenants || plan.same_tenant || plan.other_files;
}

/* One that the application may have open, too; the second is nobody's but the application's user's.
 */
static int open_file(void)
{
	struct soda_wire_open open = { .region_id = (uint16_t)sim_between(1, 65535),
				       .name_bytes = 2,
				       .flags = SODA_READ_ONLY };
	struct soda_wire_opened opened;
	struct soda_why why = { "" };
	const char *name = sim_chance(50) ? "f0" : "f1";
	bool refused = !plan.server.files || !may_have_files() ||
		       (plan.server.local && !me.agent && !strcmp(name, "f1"));
	int ret;

	if (me.open || me.tool)
		return 0;
	me.began = sim_now();
	ret = soda_conn_open_region(me.control, &open, name, &opened, &me.mr, PATIENCE_MS, &why);
	me.open = !ret;
	ret = expect("OPEN of a file", ret, refused ? -EACCES : 0);
	if (me.open) {
		me.file = name;
		me.bytes = opened.bytes;
	}
	return ret;
}

/* What a server must refuse, each with its reason. */
static int open_wrongly(void)
{
	static const struct {
		uint32_t flags;
		uint64_t bytes;
		const char *name;
		int wanted;
	} list[] = {
		{ 0, 0, "", -EINVAL },
		{ 0, 4096, "name", -EINVAL },
		{ SODA_READ_ONLY | SODA_WRITABLE, 0, "f0", -EINVAL },
		{ SODA_READ_ONLY | SODA_CREATE, 0, "f0", -EINVAL },
		{ SODA_READ_ONLY, 0, "../f0", -EACCES },
		{ SODA_READ_ONLY, 0, "/f0", -EACCES },
		{ SODA_PRIVATE, 0, "", -EINVAL },
		{ 0, 1ull << 62, "", -ENOSPC },
	};
	unsigned i = (unsigned)sim_below(sizeof(list) / sizeof(*list));
	bool seals = me.agent && plan.agent_settings.seal;
	int wanted = seals && list[i].flags == SODA_PRIVATE ? -ENOTSUP
		     : seals && list[i].wanted == -ENOSPC   ? -EINVAL /* no table is so large */
							    : list[i].wanted;
	struct soda_wire_open open = { .region_id = 7,
				       .flags = list[i].flags,
				       .bytes = list[i].bytes,
				       .name_bytes = (uint16_t)strlen(list[i].name) };
	uint8_t body[SODA_WIRE_OPEN_BYTES + 16];

	if (me.tool || me.open)
		return 0;
	soda_wire_put_open(body, &open);
	memcpy(body + SODA_WIRE_OPEN_BYTES, list[i].name, open.name_bytes);
	return expect("a wrong OPEN",
		      call(SODA_MSG_OPEN, body, SODA_WIRE_OPEN_BYTES + open.name_bytes, NULL),
		      wanted);
}

/* A call of the region by its number; another one than ours does not exist. */
static int call_region(enum soda_msg type, const char *what, bool ours)
{
	uint16_t id = (uint16_t)(ours ? me.mr.region_id : me.mr.region_id ^ 0x4000);
	uint8_t body[2 + 8] = { (uint8_t)id, (uint8_t)(id >> 8) };
	bool named = type == SODA_MSG_NAME;

	memcpy(body + 2, "neighbor", 8);
	return expect(what, call(type, body, named ? sizeof(body) : 2, NULL), ours ? 0 : -EINVAL);
}

static int close_region(void)
{
	int ret = call_region(SODA_MSG_CLOSE, "CLOSE", true);

	if (!ret) {
		soda_conn_unmap_region(&me.mr);
		me.open = false;
	}
	return ret;
}

static int discard(bool wrong)
{
	uint64_t pages = me.bytes / PAGE, first = sim_below(pages);
	uint64_t n = sim_between(1, pages - first);
	struct soda_wire_discard d = { me.mr.region_id, first * PAGE + (wrong && !me.file ? 8 : 0),
				       n * PAGE };
	int refusal = me.file ? -EACCES : wrong ? -EINVAL : 0;
	uint8_t body[SODA_WIRE_DISCARD_BYTES];
	int ret;

	soda_wire_put_discard(body, &d);
	ret = expect("DISCARD", call(SODA_MSG_DISCARD, body, sizeof(body), NULL), refusal);
	if (!ret && !refusal)
		memset(me.stored + first, 0, n * sizeof(me.stored[0]));
	return ret;
}

/* One READ or WRITE, and its answer. */
static int transfer(bool write, uint64_t page, uint64_t *words)
{
	struct soda_done done;
	int ret = write ? soda_conn_post_write(me.data, &me.mr, page * PAGE, PAGE, words, 1)
			: soda_conn_post_read(me.data, &me.mr, page * PAGE, PAGE, words, 1);

	me.began = sim_now();
	if (!ret)
		ret = soda_conn_flush(me.data, sim_chance(50));
	if (!ret)
		ret = soda_conn_poll(me.data, &done, 1, PATIENCE_MS * (int64_t)SIM_MS, 0);
	if (!ret)
		ret = -ETIMEDOUT;
	return expect(write ? "WRITE" : "READ", ret < 0 ? ret : done.status, 0);
}

static void check_file(uint64_t page, const uint64_t *words)
{
	if (words[0] != sim_disk_word(me.file, page * PAGE, false) ||
	    words[511] != sim_disk_word(me.file, page * PAGE + PAGE - 8, false))
		sim_fail("WRONG BYTES: page %llu of %s is not as in the file",
			 (unsigned long long)page, me.file);
}

static int touch(void)
{
	static uint64_t words[PAGE / 8] __attribute__((aligned(PAGE)));
	uint64_t page = sim_below(me.bytes / PAGE);
	bool write = !me.file && sim_chance(50);
	int ret = me.data ? 0 : expect("a data HELLO", connect_one(SODA_CONN_DATA, &me.data), 0);

	if (ret)
		return ret;
	memset(words, 0, sizeof(words));
	words[sim_below(2) * 511] = write ? ++me.number : 0;
	if (write)
		words[0] = words[511] = me.number;
	ret = transfer(write, page, words);
	if (ret)
		return ret;
	if (me.file)
		check_file(page, words);
	else if (write)
		me.stored[page] = me.number;
	else if (words[0] != me.stored[page] || words[511] != me.stored[page])
		sim_fail("WRONG BYTES: another client reads %llu and %llu, and stored %llu",
			 (unsigned long long)words[0], (unsigned long long)words[511],
			 (unsigned long long)me.stored[page]);
	return 0;
}

/* Calls that no client makes. */
static int call_wrongly(void)
{
	static const uint8_t body[3];

	switch (sim_below(6)) {
	case 0:
		return expect("an unknown call", call((enum soda_msg)30, NULL, 0, NULL), -EPROTO);
	case 1:
		return expect("STATS with a body", call(SODA_MSG_STATS, body, 1, NULL), -EPROTO);
	case 2:
		return expect("a long BYE", call(SODA_MSG_BYE, body, 3, NULL), -EPROTO);
	case 3:
		return expect("a short CLOSE", call(SODA_MSG_CLOSE, body, 1, NULL), -EPROTO);
	case 4:
		return expect("a short DISCARD", call(SODA_MSG_DISCARD, body, 3, NULL), -EPROTO);
	default:
		return expect("KEY", call(SODA_MSG_KEY, body, 2, NULL),
			      me.agent ? -EPROTO : -ENOTSUP);
	}
}

static int step_region(void)
{
	switch (sim_below(12)) {
	case 0:
		return call_region(SODA_MSG_NAME, "NAME", true);
	case 1:
		return call_region(SODA_MSG_SYNC, "SYNC", true);
	case 2:
		return call_region(SODA_MSG_SYNC, "SYNC of no region", false);
	case 3:
		return discard(sim_chance(30));
	case 4:
		return close_region();
	default:
		return touch();
	}
}

static int step(void)
{
	uint64_t dice = sim_below(100);

	if (me.open && dice < 70)
		return step_region();
	if (dice < 74)
		return open_region();
	if (dice < 78)
		return open_file();
	if (dice < 82)
		return open_wrongly();
	if (dice < 86)
		return list();
	if (dice < 90)
		return call_wrongly();
	return dice < 91 ? ask_stats() : ping();
}

/* It says that it leaves, or that it will, or nothing. */
static void leave(bool well)
{
	static const uint8_t later = SODA_WIRE_BYE_LATER;

	if (well)
		expect("BYE", call(SODA_MSG_BYE, &later, sim_below(2), NULL), 0);
	if (me.open)
		soda_conn_unmap_region(&me.mr);
	me.open = false;
	soda_conn_close(me.data);
	soda_conn_close(me.control);
	me.data = me.control = NULL;
}

/* The node's store */

enum { LATER = -ECANCELED }; /* the visit is over, and nothing is wrong */

static struct {
	struct soda_wire_stored got;
	struct soda_store_map *map;
	const uint8_t *data; /* is never touched: a touch of a hole would fill it */
	int map_fd, data_fd;
	_Atomic uint32_t *words, *ring;
	unsigned notes;
	/* What is in the ring, as it was found after that: word 0, not READY then. */
	struct {
		uint32_t chunk, word;
		uint64_t forced;
	} held[SODA_STORE_LAST];
} store = { .map_fd = -1, .data_fd = -1 };

static uint32_t bytes_of(uint32_t chunk)
{
	uint64_t left = me.mr.bytes - chunk * (uint64_t)plan.chunk_bytes;

	return left < plan.chunk_bytes ? (uint32_t)left : plan.chunk_bytes;
}

static int join_part(uint16_t part, int *fd_p)
{
	struct soda_wire_store ask = { .region_id = me.mr.region_id, .part = part };
	struct soda_why why = { "" };
	int ret;

	me.began = sim_now();
	ret = soda_conn_store(me.control, &ask, me.mr.bytes, &store.got, fd_p, PATIENCE_MS, &why);
	if (ret && sim_history.starved && !soda_call_lost(ret)) {
		sim_note("neighbour: STORE: %d %s", ret, why.text);
		return LATER; /* its budget may have become too small, too */
	}
	return expect("STORE", ret, 0);
}

static int join_store(void)
{
	int ret = join_part(SODA_WIRE_STORE_MAP, &store.map_fd);

	if (!ret)
		ret = join_part(0, &store.data_fd);
	if (ret)
		return ret;
	store.map = mmap(NULL, store.got.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			 store.map_fd, 0);
	store.data = mmap(NULL, me.mr.bytes, PROT_READ, MAP_SHARED, store.data_fd, 0);
	if (store.map == MAP_FAILED || store.data == MAP_FAILED)
		sim_fail("the node's store cannot be mapped");
	if (store.map->chunks != store.got.chunks || store.map->chunk_bytes != plan.chunk_bytes)
		sim_fail("INVARIANT: the map of the node's store is of another file");
	store.words = soda_store_words(store.map);
	store.ring = soda_store_member(store.map, store.got.chunks, store.got.member);
	store.notes = 0;
	memset(store.held, 0, sizeof(store.held));
	return 0;
}

static void leave_store(void)
{
	if (store.map)
		munmap(store.map, store.got.map_bytes);
	if (store.data)
		munmap((void *)(uintptr_t)store.data, me.mr.bytes);
	if (store.map_fd >= 0)
		close(store.map_fd);
	if (store.data_fd >= 0)
		close(store.data_fd);
	store.map = NULL;
	store.data = NULL;
	store.map_fd = store.data_fd = -1;
}

static bool is_ready(uint32_t word)
{
	return (word & SODA_STORE_STATE) == SODA_STORE_READY;
}

/* Its place in the ring. */
static unsigned note_chunk(uint32_t chunk)
{
	unsigned at = 0;

	while (at < SODA_STORE_LAST && atomic_load(&store.ring[at]) != chunk + 1)
		at++;
	if (at < SODA_STORE_LAST)
		return at;
	at = store.notes++ % SODA_STORE_LAST;
	store.held[at].chunk = chunk;
	store.held[at].word = 0;
	sim_point();
	atomic_store(&store.ring[at], chunk + 1);
	sim_point();
	return at;
}

/* The file's pages of the chunk, as they were read. */
static void check_pages(uint32_t chunk, const uint8_t *data)
{
	for (uint32_t at = 0; at < bytes_of(chunk); at += PAGE)
		check_file(chunk * (uint64_t)plan.chunk_bytes / PAGE + at / PAGE,
			   (const uint64_t *)(const void *)(data + at));
}

static uint8_t chunk_data[64 << 10] __attribute__((aligned(4096)));

/* What a READY word promises holds as long as the word is the same. */
static void check_ready(uint32_t chunk, uint32_t word)
{
	uint64_t at = chunk * (uint64_t)plan.chunk_bytes;
	bool all = true;

	for (uint32_t i = 0; i < bytes_of(chunk); i += PAGE) {
		all = all && sim_memfd_has(store.data + at + i);
		if (pread(store.data_fd, chunk_data + i, PAGE, (off_t)(at + i)) != PAGE)
			sim_fail("the node's store cannot be read");
		sim_point();
	}
	if (atomic_load(&store.words[chunk]) != word)
		return;
	if (!all)
		sim_fail("INVARIANT: chunk %u of the node's store is READY, and lacks pages",
			 chunk);
	check_pages(chunk, chunk_data);
}

/* Its data, from an agent that has no store for it any more; or it is there. */
static int ask_for_chunk(uint32_t chunk)
{
	uint64_t at = chunk * (uint64_t)plan.chunk_bytes;
	struct soda_done done = { .status = 0 };
	int ret = soda_conn_post_stored(me.data, &me.mr, at, bytes_of(chunk), chunk_data, 1);

	me.began = sim_now();
	if (!ret)
		ret = soda_conn_flush(me.data, sim_chance(50));
	if (!ret && sim_chance(8)) { /* killed inside a fill */
		sim_note("neighbour: ends while it waits for chunk %u", chunk);
		return LATER;
	}
	if (!ret)
		ret = soda_conn_poll(me.data, &done, 1, PATIENCE_MS * (int64_t)SIM_MS, 0);
	if (!ret)
		ret = -ETIMEDOUT;
	ret = expect("a READ of the store", ret < 0 ? ret : done.status, 0);
	if (!ret && !done.stored)
		check_pages(chunk, chunk_data);
	return ret;
}

static int read_stored(void)
{
	uint32_t chunk = (uint32_t)sim_below(store.got.chunks);
	unsigned at = note_chunk(chunk);
	uint32_t word = atomic_load(&store.words[chunk]);
	int ret = 0;

	if (!is_ready(word))
		ret = ask_for_chunk(chunk);
	if (ret)
		return ret;
	word = atomic_load(&store.words[chunk]);
	if (!is_ready(word))
		return 0; /* it has gone again */
	check_ready(chunk, word);
	if (!store.held[at].word && sim_agent_forced(&store.held[at].forced))
		store.held[at].word = word;
	return 0;
}

/*
 * What it has noted nobody evicts, as long as there is anything else.  An agent that has given up
 * the region, because the server forgot it, has cleared the ring.
 */
static int check_held(void)
{
	for (unsigned i = 0; i < SODA_STORE_LAST; i++) {
		uint32_t chunk = store.held[i].chunk, was = store.held[i].word, word;
		uint64_t forced;
		int ret;

		if (!was)
			continue;
		word = atomic_load(&store.words[chunk]);
		if ((word & ~SODA_STORE_STATE) == (was & ~SODA_STORE_STATE))
			continue;
		store.held[i].word = 0;
		ret = ping(); /* the agent that it has joined is there */
		if (ret)
			return ret;
		if (atomic_load(&store.ring[i]) == chunk + 1 && sim_agent_forced(&forced) &&
		    forced == store.held[i].forced)
			sim_fail("BROKEN PROMISE: chunk %u of the node's store has gone, which a "
				 "program had noted: %08x, and it was %08x",
				 chunk, word, was);
	}
	return 0;
}

static int step_stored(void)
{
	int ret = read_stored();

	if (!ret && sim_chance(20))
		sim_sleep(1 + sim_below(sim_chance(50) ? 100 * SIM_US : 20 * SIM_MS),
			  "nothing: it looks at what it has");
	return ret ? ret : check_held();
}

static int open_stored(void)
{
	struct soda_wire_open open = { .region_id = (uint16_t)sim_between(300, 600),
				       .name_bytes = 2,
				       .flags = SODA_READ_ONLY };
	struct soda_wire_opened opened;
	struct soda_why why = { "" };
	int ret;

	me.began = sim_now();
	ret = soda_conn_open_region(me.control, &open, "f0", &opened, &me.mr, PATIENCE_MS, &why);
	me.open = !ret;
	me.file = "f0";
	me.bytes = opened.bytes;
	ret = expect("OPEN of a file for the store", ret, 0);
	if (!ret)
		ret = expect("a data HELLO", connect_one(SODA_CONN_DATA, &me.data), 0);
	return ret ? ret : join_store();
}

static bool visit_store(void)
{
	int ret;

	me.agent = me.stores = true;
	me.tool = false;
	identify();
	ret = expect("a HELLO", connect_one(SODA_CONN_CONTROL, &me.control), 0);
	if (!ret) {
		ret = open_stored();
		for (uint64_t n = sim_between(1, 60); n && !ret; n--)
			ret = step_stored();
		leave_store();
		leave(!ret && sim_chance(80));
	}
	me.stores = false;
	return !ret || ret == LATER || ret == -ENOSPC || ret == -EDQUOT;
}

/* True: it came in, and all was as it should be. */
static bool visit(void)
{
	int ret;

	if (plan.agent_settings.store && sim_chance(60))
		return visit_store();
	me.agent = plan.agent && sim_chance(50);
	me.tool = sim_chance(30);
	identify();
	if (sim_tenants_has(peer()) && sim_chance(30))
		sim_tenants_intrude(peer());
	ret = expect("a HELLO", connect_one(SODA_CONN_CONTROL, &me.control), 0);
	if (ret)
		return false;
	if (sim_chance(15)) /* it takes as long as a hundred other calls */
		ret = ask_stats();
	for (uint64_t n = sim_between(1, 25); n && !ret; n--)
		ret = step();
	leave(!ret && sim_chance(80));
	return !ret || ret == -ENOSPC || ret == -EDQUOT;
}

static void *last_visit(void *arg)
{
	if (!visit())
		sim_fail("WRONG CODE: all is mended, and another client is not served");
	return NULL;
}

void sim_neighbour_end(void)
{
	if (plan.neighbour)
		sim_join(sim_spawn(SIM_WORLD, "neighbour", last_visit, NULL));
}

void *sim_neighbour_main(void *arg)
{
	me.reply = malloc(SODA_WIRE_MAX_CONTROL);
	while (sim_history.done < plan.ops) {
		visit();
		sim_sleep(1 + sim_below(sim_chance(50) ? SIM_MS : SIM_S), "nothing: no visit");
	}
	return NULL;
}
