/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A DPU agent that acknowledges writes before the server has them is killed.  The oracle: all that
 * the program has stored is there, no touch fails, and soda_sync succeeds.  SODA_TEST_SEED replays
 * a seed, SODA_TEST_SEEDS=N runs the first N.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "integration/dpu_agent/tenancy.h"
#include "lib/harness.h"
#include "lib/peer.h"
#include "lib/world.h"

enum { CHUNK = 65536, WORDS = CHUNK / 8, CHUNKS = 192, MARKS = 16, STRIDE = WORDS / MARKS };
enum { THREADS = 2 };

static struct world world;

/*
 * SODA_TEST_TENANTS: the server and the agents have tenants, so that each agent has to be given the
 * clients of the one before it, by their tokens.
 */
static struct tenancy below, middle, tenants; /* the server's, an agent's below, and the agents' */

static bool has_agent_below(void)
{
	return getenv("SODA_TEST_AGENT_BELOW");
}

/* The name by which agents are known where they ask. */
static const char *front(void)
{
	return has_agent_below() ? "node8" : "node7";
}

static void open_tenancies(void)
{
	tenancy_open(&below, "mem1");
	tenancy_add(&below, "node7")->role = SODA_ROLE_AGENT;
	tenancy_save(&below);
	if (has_agent_below()) {
		tenancy_open(&middle, "node7");
		tenancy_add(&middle, "node8")->role = SODA_ROLE_AGENT;
		tenancy_save(&middle);
	}
	tenancy_open(&tenants, front());
	tenancy_add(&tenants, "physics");
	tenancy_save(&tenants);
}

/* This process is a program of physics from now on. */
static void become_tenant(void)
{
	setenv("SODA_KEY_FILE", tenancy_key(&tenants, "physics"), 1);
	setenv("SODA_SERVER_NAME", front(), 1);
}

/* Chunks of one thread, and what it has stored there. */
struct model {
	uint64_t *fam;
	size_t from, to;
	uint32_t round[CHUNKS][MARKS]; /* of each word that is stored to; 0: zeros */
	struct dice dice;
};

static uint64_t *begin_patient(uint32_t threads, uint32_t fault_timeout_ms)
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	if (getenv("SODA_TEST_TENANTS"))
		become_tenant();
	cfg.server = world.address;
	cfg.buffer = "3M";
	cfg.threads = threads;
	cfg.fault_timeout_ms = fault_timeout_ms;
	start(&cfg);
	return alloc_checked(CHUNKS * CHUNK);
}

static uint64_t *begin(uint32_t threads)
{
	return begin_patient(threads, 20000);
}

/* SODA_COLD waits as long as a fault for a server that stands, and then lets the chunks stay. */
static uint64_t *begin_for_cold(void)
{
	return begin_patient(1, 6000);
}

static volatile uint64_t *word_of(const struct model *m, size_t chunk, size_t mark)
{
	return &m->fam[chunk * WORDS + mark * STRIDE];
}

static void store(struct model *m, size_t chunk, size_t mark)
{
	*word_of(m, chunk, mark) = mix(chunk * MARKS + mark, ++m->round[chunk][mark]);
}

/* Whole chunks, so that much is under way. */
static void fill(struct model *m, size_t from, size_t to)
{
	for (size_t chunk = from; chunk < to; chunk++)
		for (size_t mark = 0; mark < MARKS; mark++)
			store(m, chunk, mark);
}

static void check_chunk(const struct model *m, size_t chunk)
{
	for (size_t mark = 0; mark < MARKS; mark++) {
		uint32_t round = m->round[chunk][mark];
		uint64_t want = round ? mix(chunk * MARKS + mark, round) : 0;
		uint64_t got = *word_of(m, chunk, mark);

		CHECK(got == want, "chunk %zu, word %zu, round %u: %llx", chunk, mark, round,
		      (unsigned long long)got);
	}
}

static void check_all(const struct model *m)
{
	for (size_t chunk = m->from; chunk < m->to; chunk++)
		check_chunk(m, chunk);
}

/* Kills, by seed, under the stores of two threads. */

struct storm {
	uint64_t seed;
	unsigned kills;
};

static _Atomic int *over; /* shared: the parent has done its worst */

static void *storm(void *arg)
{
	struct model *m = arg;

	for (unsigned n = 0; !atomic_load(over) || n < 100; n++) {
		for (int i = 0; i < 40; i++) {
			size_t chunk = m->from + dice_roll(&m->dice) % (m->to - m->from);

			check_chunk(m, chunk);
			store(m, chunk, dice_roll(&m->dice) % MARKS);
		}
		if (dice_roll(&m->dice) % 32 == 0) /* the agent has it, and the page buffer not */
			CHECK_EQ(soda_advise(m->fam + m->from * WORDS, (m->to - m->from) * CHUNK,
					     SODA_COLD),
				 0);
		if (dice_roll(&m->dice) % 16 == 0)
			CHECK_EQ(soda_sync(NULL, 0), 0);
	}
	check_all(m);
	return NULL;
}

static void child_storm(const void *arg)
{
	const struct storm *s = arg;
	static struct model m[THREADS];
	uint64_t *fam = begin(THREADS);
	pthread_t threads[THREADS];

	turn_pass();
	for (size_t i = 0; i < THREADS; i++) {
		m[i].fam = fam;
		m[i].from = i * CHUNKS / THREADS;
		m[i].to = (i + 1) * CHUNKS / THREADS;
		m[i].dice.state = s->seed * THREADS + i;
		CHECK_EQ(pthread_create(&threads[i], NULL, storm, &m[i]), 0);
	}
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	CHECK(stats_now().reconnects >= 1, "no agent was lost: nothing was tested");
	CHECK_EQ(soda_sync(NULL, 0), 0);
	for (size_t i = 0; i < THREADS; i++)
		check_all(&m[i]);
	soda_free(fam);
}

/* At once; after a while in which it was stopped; again while the program is coming back. */
static void kill_somehow(struct dice *d)
{
	uint64_t how = dice_roll(d) % 4;

	if (how == 1) {
		process_halt(world.agent.pid);
		sleep_ms(dice_roll(d) % 400);
	}
	world_kill_agent(&world);
	sleep_ms(dice_roll(d) % 30);
	world_restart_agent(&world);
	if (how == 2) {
		sleep_ms(dice_roll(d) % 100);
		world_kill_agent(&world);
		world_restart_agent(&world);
	}
}

static void kill_by_seed(const void *arg)
{
	const struct storm *s = arg;
	struct dice d = { .state = s->seed ^ 0xdead };

	if (!turn_await())
		return;
	for (unsigned i = 0; i < s->kills; i++) {
		sleep_ms(20 + dice_roll(&d) % 200);
		kill_somehow(&d);
	}
	sleep_ms(100);
	atomic_store(over, 1);
}

/* SODA_TEST_SEAL: the agents seal, and each finds the keys of the one before it. */
static char seal_state[] = "/dev/shm/soda-death-XXXXXX";

static void close_tenancies(void)
{
	tenancy_close(&tenants);
	if (has_agent_below())
		tenancy_close(&middle);
	tenancy_close(&below);
}

/* The number in the statistics of the agent, of what whoever asks may see. */
static uint64_t ask_agent(const char *name)
{
	struct soda_identity *who = NULL;
	struct peer tool;
	uint64_t n;

	if (getenv("SODA_TEST_TENANTS"))
		who = tenancy_identity(&tenants, "physics", world.address);
	assert_int_equal(peer_ask_as(&tool, world.address, who), 0);
	n = peer_stat(&tool, name);
	peer_leave(&tool);
	soda_identity_free(who);
	return n;
}

/* The options of an agent of these tenants, which is `name` to the server, or to the agent, that it
 * asks. */
static void proof(char options[256], const struct tenancy *own, const char *server,
		  const struct tenancy *its, const char *name)
{
	snprintf(options, 256, " --tenants=%s --server-name=%s --key-file=%s", own->file, server,
		 tenancy_key(its, name));
}

static void open_world(bool shm)
{
	bool seal = getenv("SODA_TEST_SEAL"), proved = getenv("SODA_TEST_TENANTS");
	static const char *const server[] = { "--tenants", below.file, NULL };
	char options[400], keys[256] = "", keys_below[256];

	if (proved && has_agent_below()) {
		proof(keys_below, &middle, "mem1", &below, "node7");
		setenv("SODA_TEST_AGENT_BELOW", keys_below, 1);
		proof(keys, &tenants, "node7", &middle, "node8");
	} else if (proved) {
		proof(keys, &tenants, "mem1", &below, "node7");
	}
	/* a server that is stopped for a while is not taken for one that is gone */
	snprintf(options, sizeof(options), "--timeout=100s%s%s%s", keys,
		 seal ? " --seal --seal-state=" : "", seal ? seal_state : "");
	setenv("SODA_TEST_AGENT", options, 1);
	if (shm)
		setenv("SODA_TEST_AGENT_SHM", "1", 1);
	else
		unsetenv("SODA_TEST_AGENT_SHM");
	world_open(&world, WORLD_TCP, proved ? server : NULL);
}

static void storms(bool shm)
{
	const char *only = getenv("SODA_TEST_SEED"), *many = getenv("SODA_TEST_SEEDS");
	uint64_t from = only ? strtoull(only, NULL, 10) : drawn_number() + 1;
	uint64_t to = only ? from : from - 1 + (many ? strtoull(many, NULL, 10) : 1);

	over = shared_memory(sizeof(*over));
	for (uint64_t seed = from; seed <= to; seed++) {
		struct storm s = { .seed = seed, .kills = 6 };
		struct trial t = {
			.child = child_storm, .during = kill_by_seed, .arg = &s, .seconds = 120
		};
		struct outcome out;

		atomic_store(over, 0);
		open_world(shm);
		trial_run(&t, &out);
		world_close_noisy(&world);
		if (out.status)
			print_error("seed %llu (SODA_TEST_SEED)\n", (unsigned long long)seed);
		expect_exit(&out, 0);
	}
}

static void test_kills_tcp(void **state)
{
	storms(false);
}

static void test_kills_shm(void **state)
{
	storms(true);
}

/* What the agent alone has told the program is there: the server stands still while it dies. */

enum { OLD = 8, NEW = 24, RESIDENT = 8 }; /* chunks; all of them fit into the buffer */

static void child_keeps(const void *arg)
{
	static struct model m = { .to = CHUNKS };

	m.fam = begin_for_cold();
	fill(&m, 0, NEW);
	CHECK_EQ(soda_sync(NULL, 0), 0);
	turn_pass();
	CHECK(turn_await(), "the parent is gone"); /* the server stands */
	fill(&m, OLD, NEW);
	CHECK_EQ(soda_advise(m.fam, NEW * CHUNK, SODA_COLD), 0);      /* the agent has it */
	for (size_t chunk = NEW - 4; chunk < NEW + RESIDENT; chunk++) /* and an older content */
		store(&m, chunk, 3);
	turn_pass();
	CHECK(turn_await(), "the parent is gone"); /* another agent, and the server goes on */
	check_all(&m);
	CHECK_EQ(soda_sync(NULL, 0), 0);
	CHECK_EQ(soda_advise(m.fam, CHUNKS * CHUNK, SODA_COLD), 0);
	check_all(&m);
}

/* What was kept may be discarded before the agent's end: no content comes back. */
static void child_discards(const void *arg)
{
	static struct model m = { .to = CHUNKS };

	m.fam = begin_for_cold();
	fill(&m, 0, NEW);
	CHECK_EQ(soda_sync(NULL, 0), 0);
	turn_pass();
	CHECK(turn_await(), "the parent is gone"); /* the server stands */
	fill(&m, 0, NEW);
	CHECK_EQ(soda_advise(m.fam, NEW * CHUNK, SODA_COLD), 0);
	CHECK_EQ(soda_advise(m.fam, OLD * CHUNK, SODA_DISCARD), 0);
	memset(m.round, 0, sizeof(m.round[0]) * OLD);
	store(&m, 0, 1);
	turn_pass();
	CHECK(turn_await(), "the parent is gone"); /* another agent, and the server goes on */
	check_all(&m);
	CHECK_EQ(soda_sync(NULL, 0), 0);
	CHECK_EQ(soda_advise(m.fam, CHUNKS * CHUNK, SODA_COLD), 0);
	check_all(&m);
}

static void agent_dies(const void *arg)
{
	if (!turn_await())
		return;
	process_halt(world.server.pid);
	turn_pass();
	if (turn_await()) {
		world_kill_agent(&world);
		kill(world.server.pid, SIGCONT);
		world_restart_agent(&world);
		turn_pass();
	}
	kill(world.server.pid, SIGCONT);
}

static void run(void (*child)(const void *arg), void (*during)(const void *arg))
{
	for (int shm = 0; shm < 2; shm++) {
		struct trial t = { .child = child, .during = during, .seconds = 120 };
		struct outcome out;

		open_world(shm);
		trial_run(&t, &out);
		world_close_noisy(&world);
		expect_exit(&out, 0);
	}
}

static void test_kept(void **state)
{
	run(child_keeps, agent_dies);
}

static void test_discarded(void **state)
{
	run(child_discards, agent_dies);
}

/* More is stored than buffer and budget hold: stores wait for the server, over an agent's death. */

static void child_overflows(const void *arg)
{
	static struct model m = { .to = CHUNKS };

	m.fam = begin(1);
	turn_pass();
	CHECK(turn_await(), "the parent is gone"); /* the server stands */
	turn_pass();
	fill(&m, 0, CHUNKS);
	check_all(&m);
	CHECK_EQ(soda_sync(NULL, 0), 0);
	check_all(&m);
}

static void agent_dies_while_full(const void *arg)
{
	if (!turn_await())
		return;
	process_halt(world.server.pid);
	turn_pass();
	if (turn_await()) {
		sleep_ms(500);
		world_kill_agent(&world);
		world_restart_agent(&world);
		sleep_ms(200);
	}
	kill(world.server.pid, SIGCONT);
}

static void test_full(void **state)
{
	run(child_overflows, agent_dies_while_full);
}

/* soda_sync waits for the server, over the death of the agent that had acknowledged. */

static void child_syncs(const void *arg)
{
	static struct model m = { .to = RESIDENT };

	m.fam = begin(1);
	for (size_t chunk = 0; chunk < RESIDENT; chunk++)
		store(&m, chunk, 5);
	turn_pass();
	CHECK(turn_await(), "the parent is gone"); /* the server stands */
	CHECK_EQ(soda_sync(NULL, 0), 0);
	turn_pass(); /* the agent, the second one, is killed at once */
	CHECK(turn_await(), "the parent is gone");
	CHECK_EQ(soda_advise(m.fam, RESIDENT * CHUNK, SODA_COLD), 0);
	check_all(&m);
}

static void await_accepted(void)
{
	uint64_t accepted = 0;

	for (int i = 0; i < 6000 && accepted < RESIDENT; i++) {
		sleep_ms(10);
		accepted = ask_agent("writes_accepted");
	}
	assert_true(accepted >= RESIDENT);
}

static void agent_dies_under_sync(const void *arg)
{
	if (!turn_await())
		return;
	process_halt(world.server.pid);
	turn_pass();
	await_accepted(); /* but not written: soda_sync waits */
	world_kill_agent(&world);
	kill(world.server.pid, SIGCONT);
	world_restart_agent(&world);
	if (!turn_await())
		return;
	world_kill_agent(&world);
	world_restart_agent(&world);
	turn_pass();
}

static void test_sync_outlives_the_agent(void **state)
{
	run(child_syncs, agent_dies_under_sync);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kills_tcp), cmocka_unit_test(test_kills_shm),
		cmocka_unit_test(test_kept),	  cmocka_unit_test(test_discarded),
		cmocka_unit_test(test_full),	  cmocka_unit_test(test_sync_outlives_the_agent),
	};

	int failed;

	world_has_silent_servers();
	if (getenv("SODA_TEST_SEAL") && !mkdtemp(seal_state))
		return 1;
	if (getenv("SODA_TEST_TENANTS"))
		open_tenancies();
	failed = cmocka_run_group_tests_name("agent_death", tests, NULL, NULL);
	if (getenv("SODA_TEST_SEAL") && rmdir(seal_state)) /* all programs have said goodbye */
		failed++;
	if (getenv("SODA_TEST_TENANTS"))
		close_tenancies();
	return failed;
}
