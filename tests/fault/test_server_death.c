/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server is killed, and comes back as another instance.  The oracle:
 * no wrong byte and never zeros, no hang, the signal or error that was promised
 * in the time that was promised, and a line that says why.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/proc.h"
#include "struck.h"

static void kill_server(const void *arg)
{
	if (!turn_await())
		return;
	world_kill(&struck_world);
	turn_pass();
}

/* Killed for good. */

static void child_fault_fails(const void *arg)
{
	struct object o = struck_object(1000, 0);

	let_parent_act();
	check_touch(&o.words[o.remote * CHUNK_WORDS], SIGBUS, 0.5, 4);
	check_resident(&o);
	check_touch(&o.words[o.blank * CHUNK_WORDS], 0, 0, 0.5);
	CHECK_EQ(o.words[o.blank * CHUNK_WORDS], 0);
}

static void test_fault_ends_as_sigbus(void **state)
{
	struct outcome out;

	struck_run(child_fault_fails, kill_server, &out);
	expect_exit(&out, 0);
	expect_says(&out, struck_world.address);
}

static void child_dies(const void *arg)
{
	struct object o = struck_object(1000, 0);

	let_parent_act();
	(void)*(volatile uint64_t *)&o.words[o.remote * CHUNK_WORDS];
}

static void test_without_handler_it_kills(void **state)
{
	struct outcome out;

	struck_run(child_dies, kill_server, &out);
	expect_signal(&out, SIGBUS);
	expect_says(&out, struck_world.address);
}

static void child_aborts(const void *arg)
{
	struct object o = struck_object(1000, SODA_ON_ERROR_ABORT);

	let_parent_act();
	(void)*(volatile uint64_t *)&o.words[o.remote * CHUNK_WORDS];
}

static void test_abort(void **state)
{
	struct outcome out;

	struck_run(child_aborts, kill_server, &out);
	expect_signal(&out, SIGABRT);
	expect_says(&out, struck_world.address);
}

/* A program that waits for its server can be ended: its signals are not held up. */
static void child_is_ended(const void *arg)
{
	struct object o = struck_object(20000, 0);

	let_parent_act();
	alarm(1);
	(void)*(volatile uint64_t *)&o.words[o.remote * CHUNK_WORDS];
}

static void test_signal_while_waiting(void **state)
{
	struct outcome out;

	struck_run(child_is_ended, kill_server, &out);
	expect_signal(&out, SIGALRM);
}

/* Dirty data that cannot be sent stays, and soda_sync says so. */
static void child_sync_fails(const void *arg)
{
	struct object o = struck_object(1000, 0);
	int ret;

	let_parent_act();
	ret = soda_sync(NULL, 0);
	CHECK(ret == -EIO || ret == -ETIMEDOUT || ret == -ENOTCONN, "%s", strerror(-ret));
	CHECK(soda_last_error()[0], "no sentence");
	check_resident(&o);
	ret = soda_advise(o.words, RESIDENT * CHUNK, SODA_COLD);
	CHECK(ret < 0, "COLD of dirty data without a server: %d", ret);
	check_resident(&o);
}

static void test_sync_reports(void **state)
{
	struct outcome out;

	struck_run(child_sync_fails, kill_server, &out);
	expect_exit(&out, 0);
}

/*
 * Two threads are in soda_sync when the server is lost with data of both: each is told, as a loss
 * that only one hears of has the other one believe that what it stored is safe.
 */

enum { SYNCING = 2 };

static _Atomic int told[SYNCING];

static void sync_beside(void *arg, unsigned thread)
{
	told[thread] = soda_sync(arg, CHUNK);
}

static void child_syncs_twice(const void *arg)
{
	struct object o = struck_object(15000, 0);
	uint64_t *file = soda_alloc_file("synced", 4 * CHUNK, SODA_WRITABLE | SODA_CREATE, NULL);

	CHECK(file, "%s", soda_last_error());
	file[0] = 1;
	file[2 * CHUNK_WORDS] = 2; /* which the server alone has, in its memory */
	CHECK_EQ(soda_advise(&file[2 * CHUNK_WORDS], CHUNK, SODA_COLD), 0);
	turn_pass();
	CHECK(turn_await(), "the parent is gone"); /* the server is halted */
	turn_pass();
	run_threads(SYNCING, sync_beside, file);
	for (int i = 0; i < SYNCING; i++)
		CHECK_EQ(told[i], -EIO);
	CHECK_EQ(soda_sync(file, CHUNK), 0); /* and who comes later is not */
	check_touch(&file[2 * CHUNK_WORDS], SIGBUS, 0, 1);
	CHECK_EQ(file[0], 1);
	check_resident(&o);
}

static void lose_what_is_synced(const void *arg)
{
	if (!turn_await())
		return;
	process_halt(struck_world.server.pid);
	turn_pass();
	if (!turn_await())
		return;
	sleep_ms(1500);
	world_kill(&struck_world);
	world_restart(&struck_world);
}

static void test_all_who_sync_are_told(void **state)
{
	struct outcome out;

	struck_run(child_syncs_twice, lose_what_is_synced, &out);
	expect_exit(&out, 0);
}

/* The statistics of a program whose server is away are what its user wants to see now. */
static void child_is_asked(const void *arg)
{
	struct object o = struck_object(1000, 0);
	struct program stat;
	char self[16];

	let_parent_act();
	snprintf(self, sizeof(self), "%d", getpid());
	for (int i = 0; i < 3; i++, sleep_ms(50)) {
		CHECK_EQ(program_run("tools/soda/soda",
				     (const char *const[]){ "stat", "--json", self, NULL }, &stat),
			 0);
		CHECK(stat.status == 0 && strstr(stat.out, "\"faults\""), "%s", stat.err);
	}
	check_resident(&o);
}

static void test_stat_answers(void **state)
{
	struct outcome out;

	struck_run(child_is_asked, kill_server, &out);
	expect_exit(&out, 0);
}

/* Back as another instance. */

static void restart_server(const void *arg)
{
	if (!turn_await())
		return;
	world_kill(&struck_world);
	world_restart(&struck_world);
	turn_pass();
}

static void child_new_instance(const void *arg)
{
	struct object o = struck_object(15000, 0);
	uint64_t *fresh;

	let_parent_act();
	/* gone: at once, whatever the time-out; the second one too */
	check_touch(&o.words[o.remote * CHUNK_WORDS], SIGBUS, 0, 5);
	check_touch(&o.words[(o.remote + 1) * CHUNK_WORDS], SIGBUS, 0, 1);
	check_resident(&o);
	for (size_t c = 0; c < 8; c++)
		CHECK_EQ(o.words[(o.blank + c) * CHUNK_WORDS], 0);
	o.words[o.blank * CHUNK_WORDS] = 77;
	check_resident(&o);
	CHECK_EQ(o.words[o.blank * CHUNK_WORDS], 77);
	fresh = alloc_checked(64 * CHUNK);
	for (size_t i = 0; i < 64 * CHUNK_WORDS; i++)
		fresh[i] = mix(i, 3);
	for (size_t i = 0; i < 64 * CHUNK_WORDS; i++)
		CHECK_EQ(fresh[i], mix(i, 3));
	check_resident(&o); /* evicted to the new instance and back, or still here */
	CHECK_EQ(o.words[o.blank * CHUNK_WORDS], 77);
	soda_free(fresh);
	/* what is discarded is zeros, also where a touch has failed */
	CHECK_EQ(soda_advise(&o.words[o.remote * CHUNK_WORDS], CHUNK, SODA_DISCARD), 0);
	check_touch(&o.words[o.remote * CHUNK_WORDS], 0, 0, 1);
	CHECK_EQ(o.words[o.remote * CHUNK_WORDS], 0);
	o.words[o.remote * CHUNK_WORDS] = 5;
	CHECK_EQ(soda_advise(&o.words[o.remote * CHUNK_WORDS], CHUNK, SODA_COLD), 0);
	CHECK_EQ(o.words[o.remote * CHUNK_WORDS], 5);
	check_touch(&o.words[(o.remote + 1) * CHUNK_WORDS], SIGBUS, 0, 1);
	/* a store as well, to a page that failed before or not */
	CHECK_EQ(touch_signal(&o.words[(o.remote + 1) * CHUNK_WORDS], true), SIGBUS);
	CHECK_EQ(touch_signal(&o.words[(o.remote + 2) * CHUNK_WORDS], true), SIGBUS);
	soda_free(o.words);
}

static void test_new_instance(void **state)
{
	struct outcome out;

	struck_run(child_new_instance, restart_server, &out);
	expect_exit(&out, 0);
	expect_says(&out, "started anew");
}

/* With what kernels before 6.6 have. */
static void child_new_instance_plain(const void *arg)
{
	setenv("SODA_MODE", "handler", 1);
	setenv("SODA_MECHANISMS", "copy", 1);
	child_new_instance(arg);
}

static void test_new_instance_plain(void **state)
{
	struct outcome out;

	struck_run(child_new_instance_plain, restart_server, &out);
	expect_exit(&out, 0);
	expect_says(&out, "started anew");
}

/* A sync of all objects goes on behind one that has lost something, and behind each of them. */
static void child_syncs_all(const void *arg)
{
	struct object o = struck_object(15000, 0);
	uint64_t *other = soda_alloc(4 * CHUNK, 0), *last = soda_alloc(4 * CHUNK, 0);

	CHECK(other && last, "%s", soda_last_error());
	CHECK_EQ(soda_set_name(o.words, "first"), 0);
	other[0] = 1;
	CHECK_EQ(soda_advise(other, CHUNK, SODA_COLD), 0); /* the server alone has it */
	let_parent_act();
	last[0] = 2;
	CHECK_EQ(soda_sync(NULL, 0), -EIO);
	CHECK(strstr(soda_last_error(), "first"), "%s", soda_last_error());
	CHECK_EQ(soda_advise(last, CHUNK, SODA_COLD), 0);
	CHECK_EQ(last[0], 2);
	CHECK_EQ(soda_sync(NULL, 0), 0); /* each object says once what it has lost */
}

static void test_sync_goes_on(void **state)
{
	struct outcome out;

	struck_run(child_syncs_all, restart_server, &out);
	expect_exit(&out, 0);
	expect_says(&out, "started anew");
}

enum { FILE_BYTES = 5 << 20 };

static void make_file(uint64_t round)
{
	uint64_t *data = malloc(FILE_BYTES);

	for (size_t i = 0; i < FILE_BYTES / 8; i++)
		data[i] = mix(i, round);
	world_write_file(&struck_world, "graph", data, FILE_BYTES);
	free(data);
}

static uint64_t *open_file(void)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	uint64_t *p;

	cfg.server = struck_world.address;
	cfg.buffer = "1M";
	cfg.threads = 1;
	cfg.fault_timeout_ms = 15000;
	start(&cfg);
	p = soda_alloc_file("graph", 0, SODA_READ_ONLY, NULL);
	CHECK(p, "%s", strerror(errno));
	for (size_t i = 0; i < FILE_BYTES / 8; i++)
		CHECK_EQ(p[i], mix(i, 0));
	return p;
}

static void child_file_reopens(const void *arg)
{
	uint64_t *p = open_file();

	for (int i = 0; i < 2; i++) {
		let_parent_act();
		for (size_t w = 0; w < FILE_BYTES / 8; w++)
			CHECK_EQ(p[w], mix(w, 0));
	}
	CHECK(stats_now().reconnects >= 2, "%llu", (unsigned long long)stats_now().reconnects);
}

static void restart_twice(const void *arg)
{
	restart_server(arg);
	restart_server(arg);
}

static void test_file_reopens(void **state)
{
	struct trial t = { .child = child_file_reopens, .during = restart_twice };
	struct outcome out;

	world_open(&struck_world, WORLD_DEFAULT, NULL);
	make_file(0);
	trial_run(&t, &out);
	world_close_noisy(&struck_world);
	expect_exit(&out, 0);
}

static void rewrite_later(void)
{
	sleep_ms(20); /* another time */
	make_file(1);
}

/* In place, and with the time of modification that it had, as rsync --times does. */
static void rewrite_unseen(void)
{
	struct timespec times[2];
	struct stat st;
	int dir = open(struck_world.export_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

	assert_true(dir >= 0);
	assert_int_equal(fstatat(dir, "graph", &st, 0), 0);
	rewrite_later();
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	assert_int_equal(utimensat(dir, "graph", times, 0), 0);
	close(dir);
}

static void restart_with_other_file(const void *arg)
{
	void (*const *rewrite)(void) = arg;

	if (!turn_await())
		return;
	world_kill(&struck_world);
	(*rewrite)();
	world_restart(&struck_world);
	turn_pass();
}

/* What is resident is what it was, and nothing else can be had. */
static void check_old_content(uint64_t *p)
{
	unsigned failed = 0;

	for (size_t w = 0; w < FILE_BYTES / 8; w += CHUNK_WORDS)
		if (touch_signal(&p[w], false))
			failed++;
		else
			CHECK_EQ(p[w], mix(w, 0));
	CHECK(failed > 32, "only %u chunks of a file that is another one failed", failed);
}

static void child_file_changed(const void *arg)
{
	uint64_t *p = open_file();

	let_parent_act();
	check_old_content(p);
	for (size_t at = 0; at < FILE_BYTES; at += 4 * CHUNK) { /* nor by asking ahead */
		CHECK_EQ(soda_prefetch((char *)p + at, 4 * CHUNK), 0);
		sleep_ms(5);
	}
	check_old_content(p);
}

static void check_changed_file(void (*rewrite)(void))
{
	struct trial t = { .child = child_file_changed,
			   .during = restart_with_other_file,
			   .arg = &rewrite };
	struct outcome out;

	world_open(&struck_world, WORLD_DEFAULT, NULL);
	make_file(0);
	trial_run(&t, &out);
	world_close_noisy(&struck_world);
	expect_exit(&out, 0);
	expect_says(&out, "graph");
}

/* Promise R1. */
static void test_changed_file_fails(void **state)
{
	check_changed_file(rewrite_later);
}

/* Promise R1. */
static void test_file_changed_unseen_fails(void **state)
{
	check_changed_file(rewrite_unseen);
}

static uint64_t *open_writable(const char *buffer)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	uint64_t *p;

	cfg.server = struck_world.address;
	cfg.buffer = buffer;
	cfg.threads = 1;
	cfg.fault_timeout_ms = 15000;
	start(&cfg);
	p = soda_alloc_file("graph", 0, SODA_WRITABLE, NULL);
	CHECK(p, "%s", soda_last_error());
	for (size_t i = 0; i < FILE_BYTES / 8; i++)
		CHECK_EQ(p[i], mix(i, 0));
	return p;
}

/* It has what it read, and what it stored, and brings nothing of it back. */
static void child_is_late(const void *arg)
{
	uint64_t *p = open_writable("8M");

	p[0] = 4711;
	let_parent_act();
	CHECK(soda_sync(p, FILE_BYTES) != 0, "a file that another program has written is written");
	CHECK(strstr(soda_last_error(), "graph"), "%s", soda_last_error());
	CHECK_EQ(p[0], 4711);
	CHECK(soda_try_free(p) != 0, "a file that another program has written is closed");
}

/*
 * Its part of such a file does not fill its page buffer, so that it goes on with other objects; and
 * it lets the file go, by free or by its end, where it says so.
 */
static void child_lets_go(const void *by_free)
{
	enum { WORDS = FILE_BYTES / 8 };
	uint64_t *p = open_writable("512K"), *other;

	for (size_t i = 0; i < WORDS; i += CHUNK_WORDS)
		p[i] = 4711 + i;
	let_parent_act();
	CHECK(soda_sync(p, FILE_BYTES) != 0, "a file that another program has written is written");
	other = alloc_checked(FILE_BYTES);
	for (size_t i = 0; i < WORDS; i += 512)
		other[i] = mix(i, 2);
	for (size_t i = 0; i < WORDS; i += 512)
		CHECK_EQ(other[i], mix(i, 2));
	CHECK_EQ(p[WORDS - CHUNK_WORDS], 4711 + WORDS - CHUNK_WORDS);
	CHECK_EQ(soda_try_free(p), -EIO);
	CHECK_EQ(soda_advise(other, FILE_BYTES, SODA_ABANDON), -EINVAL);
	CHECK_EQ(soda_advise(p, FILE_BYTES, SODA_ABANDON), 0);
	if (by_free) {
		CHECK_EQ(soda_try_free(p), 0);
		CHECK(stats_now().resident_bytes <= stats_now().buffer_bytes);
		soda_free(other);
	}
	CHECK_EQ(soda_shutdown(), 0);
}

static void child_commits(const void *arg)
{
	uint64_t *p = open_writable("8M");

	for (size_t i = 0; i < FILE_BYTES / 8; i++)
		p[i] = mix(i, 1);
	CHECK_EQ(soda_sync(p, FILE_BYTES), 0);
	CHECK_EQ(soda_try_free(p), 0);
}

/* While the late one does not run, the server is another one, and another program has the file. */
static void restart_for_another(const void *arg)
{
	const struct trial t = { .child = child_commits };
	struct outcome out;

	if (!turn_await())
		return;
	child_stop();
	world_kill(&struck_world);
	world_restart(&struck_world);
	trial_run(&t, &out);
	expect_exit(&out, 0);
	child_continue();
	turn_pass();
}

/* A writer of the file, and what happens meanwhile. The file's content, to be freed. */
static uint64_t *run_writer(void (*child)(const void *arg), void (*during)(const void *arg),
			    const void *arg, struct outcome *out)
{
	struct trial t = { .child = child, .during = during, .arg = arg };
	uint64_t *data;

	world_open(&struck_world, WORLD_DEFAULT, NULL);
	make_file(0);
	trial_run(&t, out);
	data = (uint64_t *)world_read_file(&struck_world, "graph", FILE_BYTES);
	world_close_noisy(&struck_world);
	expect_exit(out, 0);
	return data;
}

/* Promise R10. */
static void test_late_writer_is_refused(void **state)
{
	struct outcome out;
	uint64_t *data = run_writer(child_is_late, restart_for_another, NULL, &out);

	expect_says(&out, "it has changed");
	for (size_t i = 0; i < FILE_BYTES / 8; i++)
		assert_int_equal(data[i], mix(i, 1));
	free(data);
}

/* Promise R10. */
static void test_late_writer_lets_go(void **state)
{
	for (int by_free = 0; by_free < 2; by_free++) {
		struct outcome out;
		uint64_t *data =
			run_writer(child_lets_go, restart_for_another, by_free ? "" : NULL, &out);

		expect_says(&out, "SODA_ABANDON");
		for (size_t i = 0; i < FILE_BYTES / 8; i++)
			assert_int_equal(data[i], mix(i, 1));
		free(data);
	}
}

/* Nobody else has had the file. */
static void child_is_alone(const void *arg)
{
	uint64_t *p = open_writable("8M");

	for (uint64_t round = 1; round < 4; round++) {
		p[round * CHUNK_WORDS] = round;
		CHECK_EQ(soda_sync(p, FILE_BYTES), 0);
		p[round * CHUNK_WORDS + 1] = round;
		let_parent_act();
		CHECK_EQ(soda_sync(p, FILE_BYTES), 0);
	}
	CHECK_EQ(soda_try_free(p), 0);
}

static void restart_thrice(const void *arg)
{
	restart_twice(arg);
	restart_server(arg);
}

/* Promise R10. */
static void test_lone_writer_goes_on(void **state)
{
	struct outcome out;
	uint64_t *data = run_writer(child_is_alone, restart_thrice, NULL, &out);

	for (uint64_t i = 1; i < 4; i++) {
		assert_int_equal(data[i * CHUNK_WORDS], i);
		assert_int_equal(data[i * CHUNK_WORDS + 1], i);
	}
	free(data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fault_ends_as_sigbus),
		cmocka_unit_test(test_without_handler_it_kills),
		cmocka_unit_test(test_abort),
		cmocka_unit_test(test_signal_while_waiting),
		cmocka_unit_test(test_sync_reports),
		cmocka_unit_test(test_all_who_sync_are_told),
		cmocka_unit_test(test_stat_answers),
		cmocka_unit_test(test_new_instance),
		cmocka_unit_test(test_new_instance_plain),
		cmocka_unit_test(test_sync_goes_on),
		cmocka_unit_test(test_file_reopens),
		cmocka_unit_test(test_changed_file_fails),
		cmocka_unit_test(test_file_changed_unseen_fails),
		cmocka_unit_test(test_late_writer_is_refused),
		cmocka_unit_test(test_late_writer_lets_go),
		cmocka_unit_test(test_lone_writer_goes_on),
	};

	return cmocka_run_group_tests_name("server_death", tests, NULL, NULL);
}
