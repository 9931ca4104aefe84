/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A script of what ranks ask of an agent's messages, well-formed or not, without a transport
 * between.  Packets that the script makes have a number in them: each must be pulled by the rank
 * that it is for, from the rank that pushed it, as it was, in its phase, and once.
 *
 *   ops: what 8, client 8, then
 *     0      HELLO: who 8 (bits: not of this machine, another user)
 *     1      JOIN: role and rank 8, ranks 8, job 8, what is odd 8
 *     2      PUSH: milliseconds 8, packets 8, of each: rank 8, words 8, their unit 8
 *     3      PULL: milliseconds 8, room 16, known 8
 *     4      AWAIT: milliseconds 8
 *     5      FINISH
 *     6      REDUCE: number 8 (to be added), what 8, value 64
 *     7      a call as it is: type 8, length 16, body
 *     8      the connection ends
 *     9      LINK: another agent of a job introduces itself: ranks 8, job 8, what is odd 8
 *     10     RELAY, or BREAK, of that agent: which 8, phase 8, done 8, packets 8, of each: from 8,
 *            to 8, words 8
 *     11     RINGS
 *     12     the program writes into its rings: words 8, of each: which 16, value 32
 *     13     OFFER of that agent, whose memory nobody here has: which 8, ranks 8, of each 16
 *
 * A job of two agents (JOIN, odd & 64) has its ranks in turns at this one and at one that nobody
 * reaches.  A call as it is names no other agents, because this one connects to whom a JOIN names.
 */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/fixtures/calls.h"
#include "transport/listen/server.h"
#include "wire/field.h"
#include "wire/messages.h"
#include "wire/msg_rings.h"

enum {
	CLIENTS = 8,
	OPS_MAX = 200,
	PACKETS = 4, /* of a PUSH of the script */
	RANKS = 5,
	WAIT_MS = 2,
	BUDGET = 16 << 20, /* mostly of all; who finds none waits for jobs that have ended */
	WORDS_LEAST = 2,
};

static const uint64_t mark = 0x5a3c96f1e2d7b480; /* of a packet of the script, with its number */

struct client {
	struct soda_peer base; /* first */
	bool used, joined, pulls;
	uint32_t rank, ranks, job, reduced;
	uint32_t phase;			  /* pushes: FINISHes; pulls: ends that were told */
	uint64_t pushes, relays, arrived; /* calls; bytes of packets that were pulled */
	uint64_t said;			  /* of arrived, and of phase: as the last PULL has said */
	uint32_t said_phase;
	bool ringed, linked;
	uint32_t *rings; /* the part of them that it can write, or NULL */
	size_t rings_bytes;
};

/* A packet that was pushed, by its number. */
struct packet {
	uint32_t job, from, to, phase, bytes, messages;
	bool taken, pulled;
};

static struct client clients[CLIENTS];
static struct packet packets[OPS_MAX * PACKETS];
static uint32_t packets_n;
static bool wrote;		    /* into rings: packets may be of anybody's making */
static uint64_t lives[CLIENTS / 2]; /* of two clients, a rank's: another one when one has gone */
static uint8_t answer[SODA_WIRE_MAX_CONTROL], body[SODA_WIRE_MAX_CONTROL];
static const char *const names[] = { "a", "job", "heat-1", "", "with space" };
enum { NAMES = sizeof(names) / sizeof(*names) };

/* The script ends connections itself. */
static void peer_close(struct soda_peer *base)
{
}

static const struct soda_peer_ops peer_ops = { .close = peer_close };

static void hello(struct fuzz_input *in, struct client *c)
{
	const struct soda_wire_hello h = { .magic = SODA_WIRE_MAGIC,
					   .version = SODA_WIRE_VERSION,
					   .kind = SODA_CONN_CONTROL,
					   .epoch = 1 }; /* no chunks: no pages */
	uint8_t who = fuzz_u8(in);
	struct soda_peer_info info = { .address = "fuzz",
				       .local = !(who & 1),
				       .uid = who & 2 ? 12345 : geteuid(),
				       .pid = getpid() };
	struct soda_wire_welcome w = { .version = SODA_WIRE_VERSION,
				       .max_data = SODA_WIRE_MAX_DATA };
	struct soda_why why = { "" };
	void *client = NULL;

	if (c->used)
		return;
	*c = (struct client){ .base = { .ops = &peer_ops, .fd = -1, .info = info } };
	if (fuzz_service->hello(fuzz_svc, &c->base, &h, &info, &w, &client, &why) < 0)
		return;
	c->base.client = client;
	c->used = true;
}

/* The call's result, with the length of the answer; -1: there is no such client. */
static int call(struct client *c, int type, const void *data, size_t bytes, size_t *bytes_p)
{
	struct soda_reply reply = { .body = answer, .share = { .fd = -1 } };
	struct soda_wire_frame frame = { .type = (uint8_t)type, .length = (uint32_t)bytes };
	uint8_t *copy;
	int ret = -1;

	*bytes_p = 0;
	if (!c->used || !soda_control_is_call(&frame))
		return ret;
	copy = malloc(bytes + !bytes); /* what reads beyond it is seen */
	MUST(copy);
	if (bytes)
		memcpy(copy, data, bytes);
	ret = fuzz_service->call(c->base.client, (enum soda_msg)type, copy, bytes, true, &reply);
	MUST(ret <= 0 && reply.bytes <= SODA_WIRE_MAX_CONTROL);
	MUST(ret != -ECANCELED || reply.why.text[0]);
	*bytes_p = reply.bytes;
	free(copy);
	return ret;
}

/* With a goodbye, or the agent would wait for the rank's return. */
static void finish_client(struct client *c)
{
	size_t n;

	if (!c->used)
		return;
	call(c, SODA_MSG_BYE, NULL, 0, &n);
	fuzz_service->gone(c->base.client, &c->base);
	lives[(c - clients) / 2]++;
	if (c->rings)
		munmap(c->rings, c->rings_bytes);
	c->used = false;
}

/* What a join that was accepted says of its client. */
static void joined(struct client *c, const struct soda_wire_msg_join *j, uint32_t job)
{
	MUST(!c->joined && j->rank < j->ranks && j->ranks <= SODA_MSG_RANKS);
	MUST(j->version == SODA_MSG_VERSION);
	c->joined = true;
	c->pulls = j->role == SODA_MSG_PULLS;
	c->rank = j->rank;
	c->ranks = j->ranks;
	c->job = job;
}

/* Behind the layout: the name; of two agents also whose each rank is, and where they are. */
static size_t put_place(struct soda_wire_msg_join *j, const char *name, uint8_t *at)
{
	static const char addresses[] = "tcp://127.0.0.1:1\0tcp://127.0.0.1:1";
	size_t n = strlen(name);

	j->name_bytes = (uint32_t)n;
	memcpy(at, name, n);
	if (j->agents != 2)
		return n;
	for (uint32_t i = 0; i < j->ranks && i < RANKS; i++)
		at[n++] = i % 2;
	memcpy(at + n, addresses, sizeof(addresses));
	return n + sizeof(addresses);
}

static void join(struct fuzz_input *in, struct client *c)
{
	uint8_t who = fuzz_u8(in), ranks = fuzz_u8(in), job = fuzz_u8(in), odd = fuzz_u8(in);
	struct soda_wire_msg_join j = { .version = SODA_MSG_VERSION + (odd % 16 == 1),
					.role = 1u + (who & 1) + (odd % 16 == 2 ? 2u : 0u),
					.rank = who / 2 % RANKS,
					.ranks = odd % 16 == 3 ? ranks * 64u : ranks % RANKS + 1u,
					.life = lives[(c - clients) / 2],
					.agents = odd & 64 ? 2 : 1 };
	size_t n;

	memset(j.key, odd & 16 ? job : 0, sizeof(j.key));
	n = put_place(&j, names[job % NAMES], body + SODA_WIRE_MSG_JOIN_BYTES);
	soda_wire_put_msg_join(body, &j);
	if (call(c, SODA_MSG_MESSAGES_JOIN, body, SODA_WIRE_MSG_JOIN_BYTES + n, &n) == 0)
		joined(c, &j, job % NAMES);
}

/* The script's next packet for a rank, at body + at; it has so many bytes. */
static size_t put_packet(struct fuzz_input *in, const struct client *c, size_t at)
{
	uint32_t to = fuzz_u8(in) % (RANKS + 1), words = fuzz_u8(in);
	struct soda_wire_msg_packet p = { .rank = to };
	struct packet *known = &packets[packets_n];

	words = WORDS_LEAST + words * (fuzz_u8(in) % 32u);
	p.bytes = 8 * words;
	if (p.bytes > SODA_MSG_PACKET_MAX - SODA_WIRE_MSG_PACKET_BYTES)
		p.bytes = SODA_MSG_PACKET_MAX - SODA_WIRE_MSG_PACKET_BYTES;
	if (at + SODA_WIRE_MSG_PACKET_BYTES + p.bytes > sizeof(body))
		p.bytes = 8 * WORDS_LEAST;
	p.messages = words * 3;
	*known =
		(struct packet){ c->job, c->rank, to, c->phase, p.bytes, p.messages, false, false };
	soda_wire_put_msg_packet(body + at, &p);
	for (uint32_t i = 0; i < p.bytes; i += 8)
		soda_wire_put_u64(body + at + SODA_WIRE_MSG_PACKET_BYTES + i,
				  (mark ^ packets_n) + i);
	packets_n++;
	return SODA_WIRE_MSG_PACKET_BYTES + p.bytes;
}

/* Of packets for one rank none is taken behind one that was refused: their order stays. */
static void take(uint32_t first, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		MUST(answer[i] <= 1);
		packets[first + i].taken = answer[i];
		for (uint32_t k = 0; k < i; k++)
			MUST(!answer[i] || answer[k] ||
			     packets[first + i].to != packets[first + k].to);
	}
}

static void push(struct fuzz_input *in, struct client *c)
{
	uint8_t wait = fuzz_u8(in);
	struct soda_wire_msg_push p = { .number = c->pushes + (wait & 128 ? wait % 4u : 1u),
					.wait_ms = wait % (WAIT_MS + 1),
					.packets = fuzz_u8(in) % (PACKETS + 1),
					.ahead = wait & 64 ? wait >> 4 & 3 : 0 };
	size_t at = SODA_WIRE_MSG_PUSH_BYTES, n, room = sizeof(body) - 64 * PACKETS;
	uint32_t first = packets_n;

	soda_wire_put_msg_push(body, &p);
	for (uint32_t i = 0; i < p.packets && at < room; i++)
		at += put_packet(in, c, at);
	if (call(c, SODA_MSG_MESSAGES_PUSH, body, at, &n) < 0)
		return;
	MUST(c->joined && !c->pulls && n <= SODA_MSG_PACKETS);
	if (p.number != c->pushes + 1)
		return; /* the last one's answer again: nothing is taken */
	c->pushes++;
	MUST(n == p.packets);
	for (uint32_t i = first; i < packets_n; i++)
		MUST(packets[i].to < c->ranks);
	take(first, p.packets);
}

/* One that the script made, by the mark in its first word; others come of calls as they are. */
static void check_packet(const struct client *c, const struct soda_wire_msg_packet *p,
			 const uint8_t *runs)
{
	uint64_t number = p->bytes >= 8 * WORDS_LEAST ? soda_wire_get_u64(runs) ^ mark : UINT64_MAX;
	struct packet *known;

	MUST(p->rank < c->ranks);
	if (number >= packets_n || wrote)
		return;
	known = &packets[number];
	MUST(known->taken && !known->pulled);
	known->pulled = true;
	MUST(known->job == c->job && known->to == c->rank && known->from == p->rank);
	MUST(known->phase == c->phase);
	MUST(known->bytes == p->bytes && known->messages == p->messages);
	for (uint32_t i = 0; i < p->bytes; i += 8)
		MUST(soda_wire_get_u64(runs + i) == (mark ^ number) + i);
}

static void pulled(struct client *c, size_t bytes, size_t room)
{
	struct soda_wire_msg_pulled pulled;
	struct soda_wire_msg_packet p;

	MUST(c->joined && c->pulls);
	MUST(soda_wire_get_msg_pulled(answer, bytes, &pulled) == 0 && pulled.ended <= 1);
	MUST(bytes <= SODA_WIRE_MSG_PULLED_BYTES + room);
	for (size_t at = SODA_WIRE_MSG_PULLED_BYTES; at < bytes; at += p.bytes) {
		MUST(soda_wire_get_msg_packet(answer + at, bytes - at, &p) == 0);
		at += SODA_WIRE_MSG_PACKET_BYTES;
		check_packet(c, &p, answer + at);
	}
	c->phase += pulled.ended;
	c->arrived += bytes - SODA_WIRE_MSG_PULLED_BYTES;
}

static void pull(struct fuzz_input *in, struct client *c)
{
	uint8_t wait = fuzz_u8(in);
	bool ahead = wait & 128; /* it was made before the last answer had come */
	struct soda_wire_msg_pull p = { .at = ahead ? c->said : c->arrived,
					.wait_ms = wait % (WAIT_MS + 1),
					.room = fuzz_u16(in) * !c->ringed,
					.known = fuzz_u8(in),
					.ended = ahead ? c->said_phase : c->phase };
	size_t n;

	c->said = p.at;
	c->said_phase = p.ended;
	soda_wire_put_msg_pull(body, &p);
	if (call(c, SODA_MSG_MESSAGES_PULL, body, SODA_WIRE_MSG_PULL_BYTES, &n) == 0)
		pulled(c, n, p.room);
}

static void await(struct fuzz_input *in, struct client *c)
{
	struct soda_wire_msg_missing missing;
	size_t n;

	soda_wire_put_u32(body, fuzz_u8(in) % (WAIT_MS + 1));
	if (call(c, SODA_MSG_MESSAGES_AWAIT, body, 4, &n) < 0)
		return;
	MUST(soda_wire_get_msg_missing(answer, n, &missing) == 0 && c->joined);
	MUST(missing.n <= c->ranks && (!missing.n || missing.first < c->ranks));
}

static void finish(struct fuzz_input *in, struct client *c)
{
	size_t n;

	soda_wire_put_u32(body, c->phase);
	if (call(c, SODA_MSG_MESSAGES_FINISH, body, 4, &n) < 0)
		return;
	MUST(c->joined && !c->pulls && n == 0);
	c->phase++;
}

static void reduce(struct fuzz_input *in, struct client *c)
{
	struct soda_wire_msg_reduce r = { .number = c->reduced + (int8_t)fuzz_u8(in),
					  .op = fuzz_u8(in) % 5,
					  .value = fuzz_u64(in) };
	size_t n;

	soda_wire_put_msg_reduce(body, &r);
	if (call(c, SODA_MSG_MESSAGES_REDUCE, body, SODA_WIRE_MSG_REDUCE_BYTES, &n) < 0)
		return;
	MUST(c->joined && !c->pulls && r.number <= c->reduced + 1);
	c->reduced += r.number == c->reduced + 1;
}

/*
 * What calls as they are change, the script knows, or it would take a right answer for a wrong one.
 * An answer to a PULL is as one that was lost: the next PULL says so.
 */
static void follow_raw(struct client *c, uint8_t type, size_t bytes)
{
	struct soda_wire_msg_place place;
	struct soda_wire_msg_join j;
	uint32_t job = 0;

	if (type == SODA_MSG_MESSAGES_JOIN) {
		MUST(soda_wire_get_msg_join(body, bytes, &j, &place) == 0);
		while (job < NAMES && (strlen(names[job]) != j.name_bytes ||
				       memcmp(names[job], place.name, j.name_bytes) != 0))
			job++;
		joined(c, &j, job);
	} else if (type == SODA_MSG_MESSAGES_PUSH) {
		c->pushes = soda_wire_get_u64(body);
	} else if (type == SODA_MSG_MESSAGES_FINISH) {
		c->phase += soda_wire_get_u32(body) == c->phase;
	} else if (type == SODA_MSG_MESSAGES_REDUCE) {
		c->reduced += soda_wire_get_u32(body) == c->reduced + 1;
	} else if (type == SODA_MSG_MESSAGES_LINK) {
		c->linked = true;
	} else if (type == SODA_MSG_MESSAGES_RELAY || type == SODA_MSG_MESSAGES_OFFER) {
		c->relays = soda_wire_get_u64(body);
	}
}

/* Or the script would stand still, or connect to anybody. */
static void tame(uint8_t type, size_t bytes)
{
	enum { AGENTS_AT = 40, WAIT_AT = 8 };

	if (type == SODA_MSG_MESSAGES_JOIN && bytes >= AGENTS_AT + 4 && body[AGENTS_AT] > 1)
		soda_wire_put_u32(body + AGENTS_AT, 1);
	if (type == SODA_MSG_MESSAGES_AWAIT && bytes >= 4)
		soda_wire_put_u32(body, body[0] % (WAIT_MS + 1));
	if ((type == SODA_MSG_MESSAGES_PUSH || type == SODA_MSG_MESSAGES_PULL ||
	     type == SODA_MSG_MESSAGES_RELAY || type == SODA_MSG_MESSAGES_OFFER) &&
	    bytes >= WAIT_AT + 4)
		soda_wire_put_u32(body + WAIT_AT, body[WAIT_AT] % (WAIT_MS + 1));
}

static void raw(struct fuzz_input *in, struct client *c)
{
	uint8_t type = SODA_MSG_MESSAGES_JOIN + fuzz_u8(in) % 16;
	size_t n = fuzz_u16(in) % 4097, got;

	n = fuzz_take(in, body, n);
	tame(type, n);
	if (call(c, type, body, n, &got) == 0)
		follow_raw(c, type, n);
}

/* As the other agent of a job would, whose ranks and places join() makes up. */
static void link_agent(struct fuzz_input *in, struct client *c)
{
	struct soda_wire_msg_join j = { .ranks = fuzz_u8(in) % RANKS + 1u, .agents = 2 };
	const char *name = names[fuzz_u8(in) % NAMES];
	uint8_t odd = fuzz_u8(in), place_bytes[64];
	struct soda_wire_msg_link l = { .version = SODA_MSG_VERSION + (odd % 8 == 1),
					.ranks = j.ranks + (odd % 8 == 2),
					.agents = 2 + (odd % 8 == 3),
					.from = odd % 8 != 4,
					.to = odd % 8 == 5,
					.life = odd / 8 };
	struct soda_wire_msg_place place = { .name = name };
	size_t n = put_place(&j, name, place_bytes);

	place.places = place_bytes + j.name_bytes;
	place.addresses = (char *)place_bytes + j.name_bytes + j.ranks;
	place.address_bytes = n - j.name_bytes - j.ranks;
	l.shape = soda_wire_msg_shape(&j, &place) + (odd % 8 == 6);
	soda_wire_put_msg_link(body, &l);
	memcpy(body + SODA_WIRE_MSG_LINK_BYTES, name, j.name_bytes);
	if (call(c, SODA_MSG_MESSAGES_LINK, body, SODA_WIRE_MSG_LINK_BYTES + j.name_bytes, &n) == 0)
		c->linked = true;
}

static void relay(struct fuzz_input *in, struct client *c)
{
	uint8_t which = fuzz_u8(in);
	struct soda_wire_msg_relay r = { .number = c->relays + (which & 128 ? which % 4u : 1u),
					 .phase = fuzz_u8(in) % 4,
					 .done = fuzz_u8(in) % 4,
					 .packets = fuzz_u8(in) % (PACKETS + 1),
					 .left = which & 64 };
	size_t at = SODA_WIRE_MSG_RELAY_BYTES, n;

	if (which % 16 == 3) {
		call(c, SODA_MSG_MESSAGES_BREAK, names[1], strlen(names[1]), &n);
		return;
	}
	soda_wire_put_msg_relay(body, &r);
	for (uint32_t i = 0; i < r.packets; i++) {
		struct soda_wire_msg_packet p = { .rank = fuzz_u8(in) % (RANKS + 1),
						  .to = fuzz_u8(in) % (RANKS + 1),
						  .bytes = 8u * fuzz_u8(in) };

		soda_wire_put_msg_packet(body + at, &p);
		memset(body + at + SODA_WIRE_MSG_PACKET_BYTES, 0, p.bytes);
		at += SODA_WIRE_MSG_PACKET_BYTES + p.bytes;
	}
	if (call(c, SODA_MSG_MESSAGES_RELAY, body, at, &n) < 0)
		return;
	MUST(n <= SODA_MSG_PACKETS);
	c->relays = r.number;
}

/* As the client's program: its part is mapped, if it can be written. */
static void rings(struct fuzz_input *in, struct client *c)
{
	struct soda_reply reply = { .body = answer, .share = { .fd = -1 } };
	struct soda_wire_msg_rings sizes;
	void *p;

	if (!c->used || fuzz_service->call(c->base.client, (enum soda_msg)SODA_MSG_MESSAGES_RINGS,
					   NULL, 0, true, &reply) < 0)
		return;
	MUST((c->joined || c->linked) && reply.share.fd >= 0);
	MUST(soda_wire_get_msg_rings(answer, reply.bytes, &sizes) == 0);
	if (c->linked) { /* which cannot write it */
		p = mmap(NULL, sizes.inbox_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			 reply.share.fd, 0);
		MUST(p == MAP_FAILED);
		return;
	}
	c->ringed = true;
	if (c->rings)
		return;
	c->rings_bytes = soda_rings_out_bytes(c->ranks, sizes.slot_bytes);
	p = mmap(NULL, c->rings_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, reply.share.fd, 0);
	MUST((p == MAP_FAILED) == c->pulls);
	c->rings = p == MAP_FAILED ? NULL : p;
}

static void write_rings(struct fuzz_input *in, struct client *c)
{
	for (unsigned n = fuzz_u8(in) % 16u; n && in->left; n--) {
		size_t at = fuzz_u16(in);
		uint32_t value = (uint32_t)fuzz_u16(in) | (uint32_t)fuzz_u16(in) << 16;

		if (!c->used || !c->rings)
			continue;
		c->rings[at % (c->rings_bytes / sizeof(*c->rings))] = value;
		wrote = true;
	}
}

/* Nothing is taken: the agent has not come to the script, and so has not mapped its memory. */
static void offer(struct fuzz_input *in, struct client *c)
{
	uint8_t which = fuzz_u8(in);
	struct soda_wire_msg_relay r = { .number = c->relays + (which & 128 ? which % 4u : 1u),
					 .wait_ms = WAIT_MS,
					 .phase = which % 4 };
	size_t at = SODA_WIRE_MSG_RELAY_BYTES, n;

	soda_wire_put_msg_relay(body, &r);
	for (unsigned i = fuzz_u8(in) % (RANKS + 1); i; i--, at += 8)
		soda_wire_put_u64(body + at, fuzz_u16(in));
	if (call(c, SODA_MSG_MESSAGES_OFFER, body, at, &n) < 0)
		return;
	MUST(c->linked && SODA_WIRE_MSG_RELAY_BYTES + n == at);
	for (size_t i = 0; i < n; i++)
		MUST(!answer[i]);
	c->relays = r.number;
}

static void end(struct fuzz_input *in, struct client *c)
{
	finish_client(c);
}

static void step(struct fuzz_input *in)
{
	static void (*const ops[])(struct fuzz_input *, struct client *) = {
		hello, join, push,	 pull,	await, finish,	    reduce,
		raw,   end,  link_agent, relay, rings, write_rings, offer
	};
	uint8_t what = fuzz_u8(in) % (sizeof(ops) / sizeof(*ops));

	ops[what](in, &clients[fuzz_u8(in) % CLIENTS]);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	fuzz_quiet();
	fuzz_agent_start("tcp://127.0.0.1:1", false, 0, BUDGET); /* nobody there: no pages */
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_input in = { data, bytes };

	packets_n = 0;
	wrote = false;
	for (int i = 0; i < CLIENTS / 2; i++)
		lives[i] = 1000 * (unsigned)i + 1;
	for (int i = 0; i < OPS_MAX && in.left; i++)
		step(&in);
	for (struct client *c = clients; c < clients + CLIENTS; c++)
		finish_client(c);
	fuzz_agent_await_idle();
	return 0;
}
