/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The agent's routing with many ranks, as a simulation: what is behind jobs.h as it is, ranks as a
 * table of this program, one step after the other, which rank does what decided by a seed.  Nothing
 * waits, so that what could stand still for ever is seen at once: a round in which no rank can do
 * anything.  Ranks have several PUSHes and PULLs under way, and lose connections.  After each job
 * every packet has come once, to whom it was for, as it was, in its phase.  The same with up to 64
 * agents, whose links (router_links.h) lose calls and answers, are down for seconds, and whose
 * agents are stopped. test_dpu_msg_router [SEEDS]
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/limits.h"
#include "routing/jobs.h"
#include "unit/routing/router_links.h"
#include "wire/field.h"

enum {
	RANKS_MAX = 64,
	LANE = 3, /* packets that a rank keeps for another one, as libsoda-msg does */
	PHASES = 3,
	PACKETS = 400, /* of a rank in a phase, at most */
	STILL_MAX =
		2000, /* steps in which nothing happens: far more than it takes to ask each rank */
	STILL_MS = 20000, /* the same with several agents, in the simulation's time */
};

/* A packet that waits in its rank's lane: its serial number says all about it. */
struct packet {
	uint32_t to, bytes;
	uint64_t serial;
};

/* A PUSH under way. */
struct flight {
	struct soda_wire_msg_push push;
	struct packet of[SODA_MSG_PACKETS];
	uint8_t taken[SODA_MSG_PACKETS];
};

/* A PULL that the agent has answered. */
struct answer {
	struct soda_wire_msg_pulled pulled;
	uint32_t bytes;
	uint8_t packets[SODA_WIRE_MAX_CONTROL];
};

/* What is under way to one rank, as libsoda-msg has it. */
struct lane {
	struct packet packets[LANE];
	unsigned n, loaded, flying; /* in PUSHes; in those that have no answer */
	uint64_t stale;		    /* none in PUSHes up to this one will be taken */
	bool blocked;
};

struct rank {
	struct lane lanes[RANKS_MAX];
	unsigned left;	/* packets to make in this phase */
	bool finished;	/* it has said so in this phase */
	unsigned phase; /* whose end it has been told */
	uint64_t next_serial;
	/* PUSHes: made, that the agent has taken, whose answer has come */
	uint64_t made, served, answered;
	struct flight flights[SODA_MSG_AHEAD];
	struct soda_inbox_view view;
	unsigned asked, got; /* PULLs that were answered by the agent; that have come back */
	struct answer answers[SODA_MSG_AHEAD];
	uint64_t arrived; /* bytes of packets */
};

/* What has happened, so that it is known that it does. */
static struct {
	uint64_t ahead, held, again, pulls_ahead, pulls_lost;
} counts;

static struct rank ranks[RANKS_MAX];
static struct soda_msg_jobs agents[AGENTS_MAX];
static uint8_t places[RANKS_MAX]; /* which agent is whose */
static uint32_t agents_n;
static struct soda_msg_job *clients[RANKS_MAX][2];
static uint32_t ranks_n;
static uint64_t state, seeds = 20;
static uint8_t *seen; /* a bit for each packet: from, serial */
static uint8_t body[SODA_WIRE_MAX_CONTROL];

enum { SERIALS = PHASES * PACKETS };

static uint64_t draw(uint64_t below)
{
	state += 0x9e3779b97f4a7c15u; /* SplitMix64 */
	uint64_t x = (state ^ state >> 30) * 0xbf58476d1ce4e5b9u;

	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return (x ^ x >> 31) % below;
}

/* What a packet's bytes are made of: from whom, to whom, in which phase, which one. */
static uint64_t tag_of(uint32_t from, uint32_t to, unsigned phase, uint64_t serial)
{
	return (uint64_t)from << 48 | (uint64_t)to << 32 | (uint64_t)phase << 24 | serial;
}

/* Their addresses, one behind the other. near: as agents of one machine. How many bytes. */
static size_t name_agents(bool near, char *text)
{
	size_t n = 0;

	for (uint32_t i = 0; i < agents_n; i++)
		n += (size_t)sprintf(text + n, "%s://%u", near ? "shm" : "sim", i) + 1;
	return n;
}

static void join_all(bool near)
{
	char addresses[AGENTS_MAX * 16];
	const struct soda_peer_info who = { .address = "sim", .local = true };
	const struct soda_wire_msg_place place = { .name = "sim",
						   .places = agents_n > 1 ? places : NULL,
						   .addresses = addresses,
						   .address_bytes = name_agents(near, addresses) };
	struct soda_why why;
	bool made;

	for (uint32_t r = 0; r < ranks_n; r++)
		for (unsigned role = 0; role < 2; role++) {
			const struct soda_wire_msg_join join = { .version = SODA_MSG_VERSION,
								 .role = SODA_MSG_PUSHES + role,
								 .rank = r,
								 .ranks = ranks_n,
								 .life = r + 1,
								 .agents = agents_n,
								 .here = places[r],
								 .name_bytes = 3 };

			assert_int_equal(soda_msg_job_join(&agents[places[r]], &join, &place, &who,
							   &clients[r][role], &clients[r][role],
							   &made, &why),
					 0);
			assert_int_equal(made, role == 0 && (!r || places[r] != places[r - 1]));
			if (made)
				router_add(clients[r][role]);
		}
}

static void leave_all(void)
{
	for (uint32_t r = 0; r < ranks_n; r++)
		for (unsigned role = 0; role < 2; role++) {
			soda_msg_job_leave(&agents[places[r]], clients[r][role], r);
			soda_msg_job_put(clients[r][role], true);
		}
}

static size_t put_packet(size_t at, uint32_t from, const struct packet *p)
{
	const struct soda_wire_msg_packet head = { .rank = p->to,
						   .bytes = p->bytes,
						   .messages = 1 };
	uint64_t tag = tag_of(from, p->to, ranks[from].phase, p->serial);

	soda_wire_put_msg_packet(body + at, &head);
	at += SODA_WIRE_MSG_PACKET_BYTES;
	for (uint32_t i = 0; i < p->bytes; i += 8)
		soda_wire_put_u64(body + at + i, tag + i);
	return at + p->bytes;
}

static struct flight *flight(struct rank *r, uint64_t number)
{
	return &r->flights[number % SODA_MSG_AHEAD];
}

/* Packets of one lane into a PUSH; of a blocked one the oldest, when it has none under way. */
static void load_lane(struct lane *lane, struct flight *f, size_t *bytes)
{
	unsigned most = !lane->blocked ? LANE : !lane->flying;

	while (most-- && lane->loaded < lane->n) {
		const struct packet *p = &lane->packets[lane->loaded];

		if (f->push.packets == SODA_MSG_PACKETS ||
		    *bytes + SODA_WIRE_MSG_PACKET_BYTES + p->bytes > sizeof(body))
			return;
		*bytes += SODA_WIRE_MSG_PACKET_BYTES + p->bytes;
		f->of[f->push.packets++] = *p;
		lane->loaded++;
		lane->flying++;
	}
}

/* As many packets of the rank's lanes as a PUSH takes, a random lane first. */
static bool push(uint32_t from)
{
	struct rank *r = &ranks[from];
	struct flight *f = flight(r, r->made + 1);
	uint32_t first = (uint32_t)draw(ranks_n);
	size_t bytes = SODA_WIRE_MSG_PUSH_BYTES;

	if (r->made - r->answered == SODA_MSG_AHEAD)
		return false;
	f->push = (struct soda_wire_msg_push){ .number = r->made + 1,
					       .ahead = (uint32_t)(r->made - r->answered) };
	for (uint32_t i = 0; i < ranks_n; i++)
		load_lane(&r->lanes[(first + i) % ranks_n], f, &bytes);
	r->made += f->push.packets > 0;
	counts.ahead += f->push.packets && f->push.ahead;
	return false;
}

/* The agent takes the oldest one that it has not. True: at least one packet was taken. */
static bool serve(uint32_t from)
{
	struct rank *r = &ranks[from];
	struct flight *f = flight(r, r->served + 1);
	struct soda_wire_msg_push checked;
	struct soda_msg_routed routed;
	struct soda_why why;
	size_t at = SODA_WIRE_MSG_PUSH_BYTES;

	if (r->served == r->made)
		return false;
	soda_wire_put_msg_push(body, &f->push);
	for (unsigned i = 0; i < f->push.packets; i++)
		at = put_packet(at, from, &f->of[i]);
	assert_int_equal(soda_wire_get_msg_push(body, at, &checked), 0);
	assert_int_equal(soda_msg_job_route(&agents[places[from]], clients[from][0], from, body,
					    &checked, f->taken, &routed, &why),
			 0);
	r->served++;
	return routed.packets > 0;
}

/* What was taken leaves its lane, in its order. */
static bool settle_packet(struct rank *r, const struct flight *f, unsigned i)
{
	struct lane *lane = &r->lanes[f->of[i].to];

	lane->flying--;
	if (f->taken[i]) {
		assert_true(f->push.number > lane->stale); /* it has overtaken none */
		assert_int_equal(f->of[i].serial, lane->packets[0].serial);
		lane->n--;
		lane->loaded--;
		memmove(&lane->packets[0], &lane->packets[1], lane->n * sizeof(struct packet));
		lane->blocked = false;
	} else if (f->push.number > lane->stale) {
		lane->stale = r->made;
		lane->loaded = 0;
		lane->blocked = true;
	} else {
		counts.held++;
	}
	return f->taken[i];
}

static bool settle(uint32_t from)
{
	struct rank *r = &ranks[from];
	const struct flight *f = flight(r, r->answered + 1);
	bool any = false;

	if (r->answered == r->served)
		return false;
	for (unsigned i = 0; i < f->push.packets; i++)
		any |= settle_packet(r, f, i);
	r->answered++;
	return any;
}

/* The connection is lost, now and then: PUSHes without an answer are made again. */
static bool lose_pushes(uint32_t from)
{
	struct rank *r = &ranks[from];

	if (!draw(16)) {
		counts.again += r->served - r->answered;
		r->served = r->answered;
	}
	return false;
}

/* A packet into a lane, if it has room. */
static bool make(uint32_t from)
{
	struct rank *r = &ranks[from];
	uint32_t to = (uint32_t)(draw(4) ? draw(ranks_n) : 0); /* rank 0 gets more: it fills up */
	static const uint32_t most[] = { 64, 4096, 30000,
					 SODA_MSG_PACKET_MAX - SODA_WIRE_MSG_PACKET_BYTES };
	uint32_t bytes = (uint32_t)draw(most[draw(4)] / 8 + 1) * 8;

	struct lane *lane = &r->lanes[to];

	if (!r->left || lane->n == LANE)
		return false;
	if (bytes < 8)
		bytes = 8;
	lane->packets[lane->n++] = (struct packet){ to, bytes, r->next_serial++ };
	r->left--;
	return true;
}

static bool lanes_empty(const struct rank *r)
{
	for (uint32_t t = 0; t < ranks_n; t++)
		if (r->lanes[t].n)
			return false;
	return true;
}

static bool finish(uint32_t from)
{
	struct rank *r = &ranks[from];
	struct soda_why why;

	if (r->finished || r->left || !lanes_empty(r))
		return false;
	assert_int_equal(
		soda_msg_job_finish(&agents[places[from]], clients[from][0], from, r->phase, &why),
		0);
	r->finished = true;
	return true;
}

/* Once, from whom and to whom it says, whole, and in its phase. */
static void check_packet(uint32_t to, const struct soda_wire_msg_packet *p, const uint8_t *runs)
{
	uint64_t tag = soda_wire_get_u64(runs), serial = tag & 0xffffff, bit;

	assert_int_equal(tag >> 48, p->rank);
	assert_int_equal(tag >> 32 & 0xffff, to);
	assert_int_equal(tag >> 24 & 0xff, ranks[to].phase);
	for (uint32_t i = 0; i < p->bytes; i += 8)
		assert_int_equal(soda_wire_get_u64(runs + i), tag + i);
	assert_true(serial < ranks[p->rank].next_serial);
	bit = p->rank * (uint64_t)SERIALS + serial;
	assert_false(seen[bit / 8] & 1u << bit % 8);
	seen[bit / 8] |= (uint8_t)(1u << bit % 8);
}

static void begin_phase(struct rank *r, unsigned phase)
{
	unsigned most = 4 * PACKETS / ranks_n;

	r->phase = phase;
	r->finished = false;
	r->left = phase < PHASES ? (unsigned)draw((most < PACKETS ? most : PACKETS) + 1) : 0;
}

/* The agent answers one PULL more, though not all answers have come. */
static bool ask(uint32_t to)
{
	struct rank *r = &ranks[to];
	struct answer *a = &r->answers[r->asked % SODA_MSG_AHEAD];
	const struct soda_wire_msg_pull pull = {
		.at = r->arrived,
		.room = draw(8) ? (uint32_t)draw(SODA_WIRE_MAX_CONTROL - SODA_WIRE_MSG_PULLED_BYTES)
				: 0,
		.ended = r->phase,
	};
	struct soda_why why;
	int bytes;

	if (r->asked - r->got == SODA_MSG_AHEAD)
		return false;
	bytes = soda_msg_job_pull(clients[to][1], to, &r->view, &pull, a->packets, &a->pulled,
				  &why);
	assert_in_range(bytes, 0, pull.room);
	a->bytes = (uint32_t)bytes;
	counts.pulls_ahead += bytes && r->asked != r->got;
	r->asked++;
	return false;
}

static bool collect(uint32_t to)
{
	struct rank *r = &ranks[to];
	const struct answer *a = &r->answers[r->got % SODA_MSG_AHEAD];
	struct soda_wire_msg_packet p;

	if (r->asked == r->got)
		return false;
	r->got++;
	r->arrived += a->bytes;
	for (uint32_t at = 0; at < a->bytes; at += p.bytes) {
		assert_int_equal(soda_wire_get_msg_packet(a->packets + at, a->bytes - at, &p), 0);
		at += SODA_WIRE_MSG_PACKET_BYTES;
		check_packet(to, &p, a->packets + at);
	}
	if (a->pulled.ended) {
		assert_true(r->finished); /* and so have all others */
		begin_phase(r, r->phase + 1);
	}
	return a->bytes || a->pulled.ended;
}

/* The connection is lost, now and then, with the answers on it. */
static bool lose_pulls(uint32_t to)
{
	struct rank *r = &ranks[to];

	if (!draw(16)) {
		counts.pulls_lost += r->asked - r->got;
		r->asked = r->got = 0;
		memset(&r->view, 0, sizeof(r->view));
	}
	return false;
}

static bool all_over(void)
{
	for (uint32_t r = 0; r < ranks_n; r++)
		if (ranks[r].phase < PHASES)
			return false;
	return true;
}

/* One thing of one rank. Some ranks are slow to pull, some to push, for a while. */
static bool step(void)
{
	static bool (*const acts[])(uint32_t) = { make, make,	 push,	 serve,	      settle,
						  ask,	collect, finish, lose_pushes, lose_pulls };
	uint32_t r = (uint32_t)draw(ranks_n);

	if (router_stopped(places[r]))
		return false;
	return ranks[r].phase < PHASES && acts[draw(sizeof(acts) / sizeof(acts[0]))](r);
}

/* That every packet that was made has been seen. */
static void check_all_seen(void)
{
	for (uint32_t r = 0; r < ranks_n; r++)
		for (uint64_t s = 0; s < ranks[r].next_serial; s++) {
			uint64_t bit = r * (uint64_t)SERIALS + s;

			assert_true(seen[bit / 8] & 1u << bit % 8);
		}
}

/* So many agents, each with as many ranks in a row. */
static void begin(uint32_t agents_wanted, uint32_t ranks_wanted, bool near)
{
	agents_n = agents_wanted;
	ranks_n = ranks_wanted;
	memset(ranks, 0, sizeof(ranks));
	memset(seen, 0, (size_t)RANKS_MAX * SERIALS / 8 + 1);
	for (uint32_t i = 0; i < agents_n; i++)
		assert_int_equal(soda_msg_jobs_init(&agents[i],
						    (uint64_t)ranks_n * SODA_MSG_INBOX_LEAST,
						    &soda_msg_tuning_usual),
				 0);
	for (uint32_t r = 0; r < ranks_n; r++)
		places[r] = (uint8_t)(r * agents_n / ranks_n);
	join_all(near);
	for (uint32_t r = 0; r < ranks_n; r++)
		begin_phase(&ranks[r], 0);
}

static void end(void)
{
	check_all_seen();
	leave_all();
	router_end();
	for (uint32_t i = 0; i < agents_n; i++)
		soda_msg_jobs_destroy(&agents[i]); /* it asserts that nothing is left */
}

static void simulate(uint64_t seed)
{
	static const uint32_t sizes[] = { 1, 2, 3, 5, 16, RANKS_MAX };
	unsigned still = 0;

	state = seed;
	router_begin(agents, (struct router_faults){ 0 }, draw);
	begin(1, sizes[draw(sizeof(sizes) / sizeof(sizes[0]))], false);
	while (!all_over()) {
		still = step() ? 0 : still + 1;
		if (still > STILL_MAX * ranks_n)
			fail_msg("seed %llu: %u ranks stand still", (unsigned long long)seed,
				 ranks_n);
	}
	end();
}

/*
 * Ranks and links, one step after the other.  An outage lasts 3 s at most, and so nobody stands
 * still for longer than that and a little more.
 */
static void simulate_agents(uint64_t seed, uint32_t agents_wanted, uint32_t ranks_wanted)
{
	static const uint32_t cuts[] = { 0, 1000, 100, 10 };
	struct router_faults faults;
	uint64_t moved_ms;

	state = seed * 1000003;
	faults = (struct router_faults){ cuts[draw(4)], draw(3) > 0 };
	router_begin(agents, faults, draw);
	begin(agents_wanted, ranks_wanted, agents_wanted <= 5 && draw(2));
	moved_ms = router_now_ms();
	while (!all_over()) {
		bool moves = router_step();

		for (unsigned i = 0; i < 4; i++)
			moves |= step();
		if (moves)
			moved_ms = router_now_ms();
		if (router_now_ms() - moved_ms > STILL_MS)
			fail_msg("seed %llu: %u ranks of %u agents stand still",
				 (unsigned long long)seed, ranks_n, agents_n);
	}
	end();
}

static void agents_under_faults(void **unused)
{
	static const uint32_t of[][2] = { { 2, 2 }, { 2, 7 }, { 3, 3 }, { 5, 16 }, { 16, 16 } };
	struct router_counts all = { 0 };

	seen = malloc((size_t)RANKS_MAX * SERIALS / 8 + 1);
	assert_non_null(seen);
	for (uint64_t seed = 1; seed <= seeds; seed++) {
		uint32_t i = (uint32_t)(seed % 5);

		simulate_agents(seed, of[i][0], of[i][1]);
		all.cuts += router_counts().cuts;
		all.outages += router_counts().outages;
		all.ahead += router_counts().ahead;
	}
	if (seeds > 4)
		assert_true(all.cuts && all.outages && all.ahead);
	free(seen);
}

static void sixty_four_agents(void **unused)
{
	seen = malloc((size_t)RANKS_MAX * SERIALS / 8 + 1);
	assert_non_null(seen);
	for (uint64_t seed = 1; seed <= (seeds + 9) / 10; seed++)
		simulate_agents(seed, AGENTS_MAX, RANKS_MAX);
	free(seen);
}

static void every_packet_once(void **unused)
{
	seen = malloc((size_t)RANKS_MAX * SERIALS / 8 + 1);
	assert_non_null(seen);
	for (uint64_t seed = 1; seed <= seeds; seed++)
		simulate(seed);
	if (seeds > 4)
		assert_true(counts.ahead && counts.held && counts.again && counts.pulls_ahead &&
			    counts.pulls_lost);
	free(seen);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(every_packet_once),
					    cmocka_unit_test(agents_under_faults),
					    cmocka_unit_test(sixty_four_agents) };

	if (argc > 1)
		seeds = strtoull(argv[1], NULL, 10);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
