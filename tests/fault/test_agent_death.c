/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A DPU agent that acknowledges writes before the server has them is killed.  The
 * oracle: what soda_sync has acknowledged is there; what was stored since may be
 * lost, which is an error at the touch and never an older content; what is resident
 * is not lost.  SODA_TEST_SEED replays a seed.
 */
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/peer.h"
#include "lib/world.h"

enum { CHUNK = 65536, WORDS = CHUNK / 8, CHUNKS = 192, MARKS = 16, STRIDE = WORDS / MARKS };

static struct world world;

struct model {
	uint64_t *fam;
	uint32_t round[CHUNKS][MARKS]; /* of each word that is stored to; 0: zeros */
	bool synced[CHUNKS];	       /* not stored to since a soda_sync that succeeded */
	uint64_t lost, refused;
	struct dice dice;
};

static uint64_t *word_of(struct model *m, size_t chunk, size_t mark)
{
	return &m->fam[chunk * WORDS + mark * STRIDE];
}

static sigjmp_buf lost_jump;

static void lost_handler(int sig)
{
	siglongjmp(lost_jump, 1);
}

static void begin(struct model *m, uint64_t seed)
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	cfg.server = world.address;
	cfg.buffer = "3M";
	cfg.threads = 1;
	cfg.fault_timeout_ms = 50000;
	start(&cfg);
	signal(SIGBUS, lost_handler);
	*m = (struct model){ .fam = alloc_checked(CHUNKS * CHUNK), .dice.state = seed };
}

/* A chunk may be lost between any two touches. */

static bool load(const volatile uint64_t *word, uint64_t *value_p)
{
	if (sigsetjmp(lost_jump, 1))
		return false;
	*value_p = *word;
	return true;
}

static bool put(volatile uint64_t *word, uint64_t value)
{
	if (sigsetjmp(lost_jump, 1))
		return false;
	*word = value;
	return true;
}

/* It may be: then it begins anew. */
static void lose(struct model *m, size_t chunk)
{
	CHECK(!m->synced[chunk], "chunk %zu was synchronised, and is lost", chunk);
	CHECK_EQ(soda_advise(&m->fam[chunk * WORDS], CHUNK, SODA_DISCARD), 0);
	memset(m->round[chunk], 0, sizeof(m->round[chunk]));
	m->lost++;
}

static void store(struct model *m, size_t chunk, size_t mark)
{
	uint32_t round = m->round[chunk][mark] + 1;

	if (!put(word_of(m, chunk, mark), mix(chunk * MARKS + mark, round))) {
		lose(m, chunk);
		return;
	}
	m->synced[chunk] = false;
	m->round[chunk][mark] = round;
}

/* All that was stored to it is there, or it is lost. */
static void check_chunk(struct model *m, size_t chunk)
{
	for (size_t mark = 0; mark < MARKS; mark++) {
		uint32_t round = m->round[chunk][mark];
		uint64_t want = round ? mix(chunk * MARKS + mark, round) : 0, got;

		if (!load(word_of(m, chunk, mark), &got)) {
			lose(m, chunk);
			return;
		}
		CHECK(got == want, "chunk %zu, word %zu, round %u: %llx", chunk, mark, round,
		      (unsigned long long)got);
	}
}

static void check_all(struct model *m)
{
	for (size_t chunk = 0; chunk < CHUNKS; chunk++)
		check_chunk(m, chunk);
}

static void sync_all(struct model *m)
{
	int ret = soda_sync(NULL, 0);

	CHECK(!ret || ret == -EIO, "%s", strerror(-ret));
	if (ret) { /* what was lost */
		m->refused++;
		check_all(m);
	} else {
		memset(m->synced, true, sizeof(m->synced));
	}
}

/* Kills, by seed, under stores. */

struct storm {
	uint64_t seed;
	unsigned kills;
};

static _Atomic int *over; /* shared: the parent has done its worst */

static void child_storm(const void *arg)
{
	const struct storm *s = arg;
	static struct model m;

	begin(&m, s->seed);
	turn_pass();
	for (unsigned n = 0; !atomic_load(over) || n < 200; n++) {
		for (int i = 0; i < 40; i++) {
			size_t chunk = dice_roll(&m.dice) % CHUNKS;

			check_chunk(&m, chunk);
			store(&m, chunk, dice_roll(&m.dice) % MARKS);
		}
		if (dice_roll(&m.dice) % 8 == 0)
			sync_all(&m);
	}
	check_all(&m);
	CHECK(stats_now().reconnects >= 1, "no agent was lost: nothing was tested");
	CHECK(m.lost >= m.refused, "%llu refusals, %llu lost", (unsigned long long)m.refused,
	      (unsigned long long)m.lost);
	sync_all(&m);
	sync_all(&m);
	CHECK(m.synced[0], "a loss is told twice");
	soda_free(m.fam);
}

static void kill_by_seed(const void *arg)
{
	const struct storm *s = arg;
	struct dice d = { .state = s->seed ^ 0xdead };

	if (!turn_await())
		return;
	for (unsigned i = 0; i < s->kills; i++) {
		sleep_ms(20 + dice_roll(&d) % 200);
		world_kill_agent(&world);
		sleep_ms(dice_roll(&d) % 30);
		world_restart_agent(&world);
	}
	sleep_ms(100);
	atomic_store(over, 1);
}

static void open_world(bool shm)
{
	/* a server that is stopped for a while is not taken for one that is gone */
	setenv("SODA_TEST_AGENT", "--timeout=100s", 1);
	if (shm)
		setenv("SODA_TEST_AGENT_SHM", "1", 1);
	else
		unsetenv("SODA_TEST_AGENT_SHM");
	world_open(&world, WORLD_TCP, NULL);
}

static void storms(bool shm)
{
	const char *only = getenv("SODA_TEST_SEED");
	uint64_t from = only ? strtoull(only, NULL, 10) : 1, to = only ? from : 3;

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

/* What is lost, and what is not: the server stands still while the agent takes over. */

enum { OLD = 8, NEW = 24, RESIDENT = 8 }; /* chunks; all of them fit into the buffer */

static void child_loses(const void *arg)
{
	static struct model m;
	unsigned lost = 0;

	begin(&m, 1);
	for (size_t chunk = 0; chunk < NEW; chunk++)
		store(&m, chunk, 0);
	CHECK_EQ(soda_sync(NULL, 0), 0);
	memset(m.synced, true, sizeof(m.synced));
	turn_pass();
	CHECK(turn_await(), "the parent is gone"); /* the server stands */
	for (size_t chunk = OLD; chunk < NEW; chunk++) {
		check_chunk(&m, chunk);
		store(&m, chunk, 0);
	}
	CHECK_EQ(soda_advise(m.fam, NEW * CHUNK, SODA_COLD), 0); /* the agent has it */
	for (size_t chunk = NEW; chunk < NEW + RESIDENT; chunk++)
		store(&m, chunk, 3);
	turn_pass();
	CHECK(turn_await(), "the parent is gone"); /* another agent, and the server goes on */
	for (size_t chunk = 0; chunk < OLD; chunk++)
		check_chunk(&m, chunk);
	CHECK_EQ(m.lost, 0);
	for (size_t chunk = OLD; chunk < NEW; chunk++) {
		uint64_t value;

		lost += !load(word_of(&m, chunk, 0), &value);
	}
	CHECK_EQ(lost, NEW - OLD);
	for (size_t chunk = NEW; chunk < CHUNKS; chunk++)
		check_chunk(&m, chunk);
	CHECK_EQ(m.lost, 0);
	CHECK_EQ(soda_sync(NULL, 0), -EIO);
	CHECK(strstr(soda_last_error(), "agent died"), "%s", soda_last_error());
	CHECK_EQ(soda_sync(NULL, 0), 0);
	for (size_t chunk = OLD; chunk < NEW; chunk++)
		check_chunk(&m, chunk); /* zeros now, by DISCARD */
	CHECK_EQ(m.lost, NEW - OLD);
	for (size_t chunk = OLD; chunk < NEW; chunk++)
		store(&m, chunk, 1);
	CHECK_EQ(soda_sync(NULL, 0), 0);
	CHECK_EQ(soda_advise(m.fam, NEW * CHUNK, SODA_COLD), 0);
	check_all(&m);
}

static void agent_dies(const void *arg)
{
	if (!turn_await())
		return;
	kill(world.server.pid, SIGSTOP);
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

static void test_what_is_lost(void **state)
{
	run(child_loses, agent_dies);
}

/* soda_sync waits for the server, over the death of the agent that had acknowledged. */

static void child_syncs(const void *arg)
{
	static struct model m;

	begin(&m, 1);
	for (size_t chunk = 0; chunk < RESIDENT; chunk++)
		store(&m, chunk, 5);
	turn_pass();
	CHECK(turn_await(), "the parent is gone"); /* the server stands */
	CHECK_EQ(soda_sync(NULL, 0), 0);
	turn_pass(); /* the agent, the second one, is killed at once */
	CHECK(turn_await(), "the parent is gone");
	CHECK_EQ(soda_advise(m.fam, RESIDENT * CHUNK, SODA_COLD), 0);
	memset(m.synced, true, sizeof(m.synced));
	check_all(&m);
}

static void await_accepted(void)
{
	uint64_t accepted = 0;

	for (int i = 0; i < 6000 && accepted < RESIDENT; i++) {
		struct peer tool;

		sleep_ms(10);
		assert_int_equal(peer_ask(&tool, world.address), 0);
		accepted = peer_stat(&tool, "writes_accepted");
		peer_leave(&tool);
	}
	assert_true(accepted >= RESIDENT);
}

static void agent_dies_under_sync(const void *arg)
{
	if (!turn_await())
		return;
	kill(world.server.pid, SIGSTOP);
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
		cmocka_unit_test(test_kills_tcp),
		cmocka_unit_test(test_kills_shm),
		cmocka_unit_test(test_what_is_lost),
		cmocka_unit_test(test_sync_outlives_the_agent),
	};

	return cmocka_run_group_tests_name("agent_death", tests, NULL, NULL);
}
