/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>

#include "disk.h"
#include "net.h"
#include "pool/erasure.h"
#include "sealing/sealing.h"
#include "trust/tenants.h"
#include "world.h"

struct sim_plan plan;

static uint64_t one_of(const uint64_t *list, unsigned n)
{
	return list[sim_below(n)];
}
#define ONE_OF(...)                                                                                \
	one_of((const uint64_t[]){ __VA_ARGS__ }, sizeof((const uint64_t[]){ __VA_ARGS__ }) / 8)

static uint64_t dice_of(uint64_t seed, uint64_t what)
{
	uint64_t dice = (seed ^ what) * 0x9e3779b97f4a7c15u;

	dice = (dice ^ dice >> 29) * 0xbf58476d1ce4e5b9u;
	return dice ^ dice >> 32;
}

/*
 * In a part of the seeds the agent has a store for the node, which files are larger than.  The dice
 * are others than the rest's, so that all other seeds stay what they are.
 */
static void offer_store(uint64_t seed)
{
	static const unsigned chunks[] = { 8, 12, 16, 24, 32, 64 };
	uint64_t dice = dice_of(seed, 0x53746f7265);
	struct sim_agent_settings *s = &plan.agent_settings;

	if (!plan.agent || !plan.server.files || !s->async || s->base || dice % 100 >= 60)
		return;
	s->store = (uint64_t)chunks[dice / 100 % 6] * plan.chunk_bytes;
	sim_host_shares = true;
	sim_host_poisons = dice / 1000 % 100 >= 30;
}

bool sim_plan_has_pool(uint64_t seed)
{
	return dice_of(seed, 0x506f6f6c) % 100 < 15;
}

/* Of a pool: whether an agent stands before it. */
static bool has_agent(uint64_t seed)
{
	return dice_of(seed, 0x46726f6e74) % 100 < 35;
}

/*
 * In a part of the pools with redundancy objects have erasure codes, in a part they lie in stripes,
 * and in a part servers are drained; with dice of their own.
 */
static void offer_codes(uint64_t seed)
{
	uint64_t dice = dice_of(seed, 0x436f646573);
	uint32_t pieces = dice / 100 % 2 ? 4 : 2, members = pieces;

	plan.drains = plan.mirrored && dice / 10000 % 100 < 40;
	if (!plan.mirrored || dice % 100 >= 55)
		return;
	if (dice % 100 >= 40) {
		plan.code = pieces == 4 ? "stripe:4" : "stripe:2";
		plan.one_at_a_time = false; /* each one that dies is one too many */
	} else if (soda_erasure_built()) {
		soda_erasure_start();
		plan.code = pieces == 4 ? "ec:4+2" : "ec:2+1";
		members += pieces / 2;
	} else {
		return;
	}
	plan.servers = members + (unsigned)(dice / 1000 % 10 < 7);
	if (plan.chunk_bytes < pieces * 4096)
		plan.chunk_bytes = pieces * 4096;
}

/*
 * In a part of the seeds there are several servers.  The dice are others than the rest's, so that
 * all other seeds stay what they are.  A pool has no files; before some an agent stands.
 */
static void offer_pool(uint64_t seed)
{
	uint64_t dice = dice_of(seed, 0x4d656d62657273);

	plan.servers = 1;
	if (!sim_plan_has_pool(seed))
		return;
	plan.servers = 2 + (unsigned)(dice % 100 < 40 ? 1 : dice % 100 < 70 ? 2 : 0);
	plan.mirrored = dice / 100 % 100 < 90;
	plan.one_at_a_time = plan.mirrored && dice / 10000 % 100 < 50;
	plan.rebuild_rate = dice / 1000000 % 100 < 50 ? "1M" : "128M";
	plan.agent = has_agent(seed);
	plan.handler = plan.neighbour = plan.server.files = false;
	sim_net_keeps = dice_of(seed, 0x4b656570) % 100 < 80;
	plan.server.max_clients = 1000; /* servers do not refuse the host itself */
	offer_codes(seed);
	plan.buffer_chunks += plan.threads * plan.servers; /* a staging slot for each */
	if (plan.one_at_a_time) {
		/* one whose threads a silent server holds up is noticed */
		plan.agent_settings.base = false;
		plan.agent_settings.async = true;
		plan.server.capacity += 64ull << 20; /* room for what each one that dies had */
		plan.server.quota = 0;
		plan.fault_ms = 10000;
	}
}

/* In a part of the seeds objects are sealed; with dice of their own, too. */
static void offer_sealing(uint64_t seed)
{
	uint64_t dice = dice_of(seed, 0x5365616c);

	if (dice % 100 >= (plan.mirrored ? 40 : 15))
		return;
	plan.sealed = dice / 100 % 2 ? 100 : 50;
	plan.buffer_chunks += 4; /* places for what has been sealed */
}

/* In a part of the seeds with files some of them are sealed; with dice of their own, too. */
static void offer_sealed_files(uint64_t seed)
{
	if (!plan.server.files || dice_of(seed, 0x5346696c65) % 100 >= (plan.agent ? 30 : 60))
		return;
	plan.sealed_files = true;
	if (!plan.sealed)
		plan.buffer_chunks += 4;
}

/*
 * In a part of the seeds with an agent that seals, most of the time with a directory where the next
 * agent finds its keys; with dice of their own, too.
 */
static void offer_agent_sealing(uint64_t seed)
{
	uint64_t dice = dice_of(seed, 0x41675365616c);
	struct sim_agent_settings *s = &plan.agent_settings;

	if (!plan.agent || dice % 100 >= 30)
		return;
	s->seal = sim_host_agent_seals = s->async = true;
	s->base = false;
	s->seal_keep_ms = 240000;
	/* where one at a time is struck, and the agent, too, nothing may be lost */
	if (plan.one_at_a_time || dice / 100 % 10 < 7)
		s->seal_state = SIM_STATE;
	/* a program's own sealed files are refused, and the agent's are as any to it */
	plan.sealed_files = plan.server.files && dice / 1000 % 100 < 60;
	if (plan.sealed_files)
		s->seal_key = SIM_DISK_KEY;
}

/*
 * In a part of the seeds daemons have tenants: the servers, an agent, or both; with dice of their
 * own, too.
 */
static void offer_tenants(uint64_t seed)
{
	uint64_t dice = dice_of(seed, 0x54656e616e74);
	struct sim_agent_settings *s = &plan.agent_settings;

	if (dice % 100 >= 30)
		return;
	/* without both an agent's death costs what its programs have, on all servers at once */
	plan.server.tenants = !plan.agent || plan.mirrored || dice / 100 % 100 < 80;
	if (plan.agent && (!plan.server.tenants || plan.mirrored || dice / 10000 % 100 < 75))
		s->tenants = sim_tenants_file(SIM_AGENT);
	if (plan.server.tenants && plan.agent)
		s->key_file = SIM_TENANT_KEY_AGENT;
	if (plan.agent) { /* a program that no agent knows any more stays a client for a while */
		plan.server.max_clients = 1000;
		plan.server.capacity += 64ull << 20;
	}
	sim_net_ports = true;
	plan.same_tenant = dice / 1000000 % 100 < 30;
	plan.other_files = dice / 1000000 % 10 < 5;
	if (dice / 100000000 % 100 < 40 && !plan.mirrored)
		plan.tenant_quota = 12ull << 20;
}

/* sim_run has begun: the seed decides. */
void sim_plan_make(uint64_t seed)
{
	plan = (struct sim_plan){
		.seed = seed,
		.ops = 500,
		.faults = (unsigned)sim_between(5, 12),
		.threads = (unsigned)sim_between(1, SIM_THREADS),
		.agent = sim_chance(60),
		.chunk_bytes = (uint32_t)ONE_OF(4096, 4096, 4096, 8192, 8192, 16384, 16384, 65536),
		.prefetch = (uint32_t)ONE_OF(0, 0, 4, 16),
		.connect_ms = (uint32_t)ONE_OF(1000, 5000),
		.fault_ms = (uint32_t)ONE_OF(1000, 3000, 10000),
		.evict = sim_chance(70) ? "ghost" : "fifo",
		.delay_ns = ONE_OF(5 * SIM_US, 30 * SIM_US, 300 * SIM_US),
	};
	plan.crowded = (unsigned)ONE_OF(0, 50, 90);
	plan.jitter_ns = plan.delay_ns * ONE_OF(0, 1, 10);
	plan.buffer_chunks = plan.threads * 5 + (uint32_t)ONE_OF(2, 8, 24, 60);
	plan.server = (struct sim_server_settings){
		.capacity = ONE_OF(12, 32, 64) << 20,
		.quota = sim_chance(20) ? 12ull << 20 : 0,
		.grace_ms = (uint32_t)ONE_OF(200, 1000, 5000, 60000, 60000),
		.max_clients = (uint32_t)ONE_OF(2, 4, 100),
		.workers = (uint32_t)sim_between(1, 3),
	};
	plan.neighbour = sim_chance(50);
	if (plan.neighbour) { /* whose places, and memory, are not the application's */
		plan.server.max_clients = 1000; /* those that ended without BYE stay for a while */
		plan.server.capacity += 64ull << 20;
		plan.server.quota = plan.server.capacity - (16ull << 20);
	}
	plan.handler = sim_chance(25);
	plan.server.files = sim_chance(50);
	plan.server.local = sim_net_local = sim_chance(30);
	if (plan.server.files)
		sim_disk_make();
	plan.agent_settings = (struct sim_agent_settings){
		.write_budget = ONE_OF(64, 256, 4096) << 10,
		.client_credit = ONE_OF(128, 1024, 16384) << 10,
		.window = ONE_OF(256, 4096) << 10,
		.cache_bytes = ONE_OF(4, 16) << 20,
		.static_bytes = ONE_OF(1, 16) << 20,
		.grace_ms = (uint32_t)ONE_OF(200, 1000, 5000, 60000),
		.timeout_ms = (uint32_t)ONE_OF(500, 2000, 10000),
		.workers = (uint32_t)sim_between(1, 3),
		.completers = (uint32_t)sim_between(1, 2),
		.channels = (uint32_t)sim_between(1, 3),
		.base = sim_chance(10),
		.aggregate = sim_chance(80),
		.async = sim_chance(85),
		.dynamic = sim_chance(50),
		.limit = (uint32_t)sim_between(0, 2),
	};
	offer_pool(seed);
	offer_store(seed);
	offer_sealing(seed);
	offer_sealed_files(seed);
	offer_agent_sealing(seed);
	offer_tenants(seed);
}

void sim_plan_print(void)
{
	sim_note("plan: %s, %u threads, chunks of %u, buffer of %u, prefetch %u, connect %u ms, "
		 "fault %u ms, %u faults",
		 plan.agent ? "with an agent" : "direct", plan.threads, plan.chunk_bytes,
		 plan.buffer_chunks, plan.prefetch, plan.connect_ms, plan.fault_ms, plan.faults);
	if (plan.servers > 1)
		sim_note("plan: a pool of %u servers%s%s%s", plan.servers,
			 plan.agent && !sim_net_keeps ? ", whose agent keeps nothing" : "",
			 plan.mirrored && !plan.code ? ", mirror:2" : "",
			 plan.one_at_a_time ? ", of which one at a time is struck" : "");
	if (plan.code || plan.drains)
		sim_note("plan: %s%s", plan.code ? plan.code : "mirror:2",
			 plan.drains ? ", servers are drained" : "");
	if (plan.sealed)
		sim_note("plan: %u of 100 objects are sealed", plan.sealed);
	if (plan.agent_settings.seal)
		sim_note("plan: the agent seals%s",
			 plan.agent_settings.seal_state ? ", and the next one finds its keys" : "");
	if (plan.sealed_files)
		sim_note("plan: there are sealed files");
	if (plan.server.tenants || plan.agent_settings.tenants)
		sim_note("plan: tenants of%s%s%s%s%s", plan.server.tenants ? " the servers" : "",
			 plan.agent_settings.tenants ? " the agent" : "",
			 plan.tenant_quota ? ", with a quota" : "",
			 plan.same_tenant ? ", the other client is the application's" : "",
			 plan.other_files ? "" : ", and no directory");
	if (plan.agent_settings.store)
		sim_note("plan: a store of %llu chunks%s",
			 (unsigned long long)plan.agent_settings.store / plan.chunk_bytes,
			 sim_host_poisons ? "" : ", an old kernel");
	sim_note("plan: %s, points between decisions %u, stalls %u, server's grace %u ms, "
		 "agent's %u ms, its time-out %u ms, limit %u, budget %llu%s%s%s%s%s%s%s%s",
		 plan.evict, plan.slow, plan.stalls, plan.server.grace_ms,
		 plan.agent_settings.grace_ms, plan.agent_settings.timeout_ms,
		 plan.agent_settings.limit, (unsigned long long)plan.agent_settings.write_budget,
		 plan.agent_settings.base ? ", base" : "",
		 plan.agent_settings.aggregate ? ", aggregate" : "",
		 plan.agent_settings.async ? ", async" : "",
		 plan.agent_settings.dynamic ? ", dynamic" : "",
		 plan.neighbour ? "; another client" : "", plan.server.files ? ", files" : "",
		 plan.handler ? ", handler" : "", plan.server.local ? ", local users" : "");
}
