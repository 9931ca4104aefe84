/* SPDX-License-Identifier: BSD-3-Clause */
/* examples/simulation: a solver hands its fields over in each of five ways, and a program draws
 * them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/peer.h"
#include "lib/proc.h"

enum { SIZE = 64 };

static struct server agent;
static char image[] = "/tmp/soda-frame-XXXXXX", saved[] = "/tmp/soda-step-XXXXXX";
static struct program run;

static int up(void **state)
{
	char listen[64];
	const char *args[] = { "--listen",	listen, "--server", "tcp://127.0.0.1:1",
			       "--move-memory", "16M",	NULL };

	snprintf(listen, sizeof(listen), "shm://@soda-simulation-%d", (int)getpid());
	return close(mkstemp(image)) || close(mkstemp(saved)) || agent_start(&agent, args);
}

static int down(void **state)
{
	int bad = server_stop(&agent) || server_complaints(&agent);

	server_forget(&agent);
	return unlink(image) || unlink(saved) || bad;
}

/* The solver begins when the program that draws awaits it: else it may have ended before. */
static pid_t start_heat(const char *as)
{
	const char *heat = build_path("examples/simulation/heat");
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(120);
	while (peer_stat_at(agent.address, "move_awaited") != 1)
		usleep(1000);
	execl(heat, heat, "--agent", agent.address, "--as", as, "--size", "64", "--iterations",
	      "2000", "--every", "500", "--name", as, NULL);
	_exit(127);
}

/* The solver and who draws beside it; what the latter says is in `run`. */
static void simulate(const char *as)
{
	const char *args[] = { "--agent", agent.address, "--name", as,	"--image",
			       image,	  "--save",	 saved,	   NULL };
	pid_t pid = start_heat(as);
	int status;

	assert_true(pid > 0);
	assert_int_equal(program_run("examples/simulation/frames", args, &run), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (run.status || status)
		fail_msg("%s: frames %d, heat %d: %s", as, run.status, status, run.err);
}

static size_t read_all(const char *path, void *to, size_t room)
{
	FILE *in = fopen(path, "r");
	size_t bytes;

	assert_non_null(in);
	bytes = fread(to, 1, room, in);
	fclose(in);
	return bytes;
}

/* How bright the picture is at a cell: the sum of its colours. */
static unsigned bright(const unsigned char *pixels, int x, int y)
{
	const unsigned char *rgb = pixels + 3 * (y * SIZE + x);

	return (unsigned)rgb[0] + rgb[1] + rgb[2];
}

/* The disc in the middle is hot, the corners are cold, and it has spread evenly. */
static void test_picture(void **state)
{
	static unsigned char ppm[3 * SIZE * SIZE + 100];
	const char head[] = "P6\n64 64\n255\n";
	const unsigned char *pixels = ppm + sizeof(head) - 1;
	size_t bytes;

	simulate("structs");
	assert_non_null(strstr(run.out, "iteration 2000, 64 x 64"));
	bytes = read_all(image, ppm, sizeof(ppm));
	assert_int_equal(bytes, sizeof(head) - 1 + (size_t)3 * SIZE * SIZE);
	assert_memory_equal(ppm, head, sizeof(head) - 1);
	assert_true(bright(pixels, 32, 32) > bright(pixels, 32, 12));
	assert_true(bright(pixels, 32, 12) > bright(pixels, 1, 1));
	assert_int_equal(bright(pixels, 0, 0), 0);
	assert_in_range(bright(pixels, 16, 32), bright(pixels, 48, 32) - 30,
			bright(pixels, 48, 32) + 30);
}

/* Others are Arrow IPC, which --save leaves to a library: the last step is there, whole. */
static void test_ipc(void **state)
{
	static const struct {
		const char *as, *what, *begin;
	} cases[] = {
		{ "stream", "an Arrow IPC stream", "\xff\xff\xff\xff" },
		{ "host", "an Arrow IPC stream", "\xff\xff\xff\xff" },
		{ "agent", "an Arrow IPC stream", "\xff\xff\xff\xff" },
		{ "file", "an Arrow IPC file", "ARRO" },
	};
	static char step[1 << 17];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		size_t bytes;

		simulate(cases[i].as);
		assert_non_null(strstr(run.out, cases[i].what));
		bytes = read_all(saved, step, sizeof(step));
		assert_in_range(bytes, 2 * SIZE * SIZE * sizeof(double), sizeof(step) - 1);
		assert_memory_equal(step, cases[i].begin, 4);
		if (!strcmp(cases[i].as, "file"))
			assert_memory_equal(step + bytes - 6, "ARROW1", 6);
	}
}

static void test_refused(void **state)
{
	const char *as[] = { "--agent", agent.address, "--as", "other", NULL },
		   *none[] = { "--as", "none", "--size", "2", NULL },
		   *nobody[] = { "--agent", "shm://@soda-simulation-nobody", NULL };

	assert_int_equal(program_run("examples/simulation/heat", as, &run), 0);
	assert_int_equal(run.status, 2);
	assert_int_equal(program_run("examples/simulation/heat", none, &run), 0);
	assert_int_equal(run.status, 2);
	assert_int_equal(program_run("examples/simulation/frames", nobody, &run), 0);
	assert_int_equal(run.status, 1);
	assert_true(run.err[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_picture),
		cmocka_unit_test(test_ipc),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests_name("examples/simulation", tests, up, down);
}
