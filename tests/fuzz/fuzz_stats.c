/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The counters of a program, as `soda top` and `soda stat` read and show them.  The program is this
 * one: two answers that it gives, one after the other, are the input; what follows from both is
 * drawn, and the first is printed.
 *
 *   columns 8, rows 8, how 8, scroll 8, length of the first answer 16, answers
 */
#include <fcntl.h>
#include <jansson.h>
#include <locale.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/lock.h"
#include "fuzz/fuzz.h"
#include "soda/base/tool.h"
#include "soda/watch/frame.h"

enum { ANSWERS = 2, PATIENCE_MS = 30000 };

static int listening = -1, nowhere = -1;
static char self[16];

/* The program: one thread, a question after the other; guarded by lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct fuzz_input answers[ANSWERS];
static unsigned asked;
static bool over;

/* The third question waits until the input is over: what is shown then is of two answers. */
static void answer(int fd)
{
	pthread_mutex_lock(&lock);
	if (asked < ANSWERS) {
		const struct fuzz_input *a = &answers[asked++];

		(void)!send(fd, a->at, a->left, MSG_NOSIGNAL);
	} else {
		while (!over)
			pthread_cond_wait(&changed, &lock);
	}
	pthread_mutex_unlock(&lock);
}

static void *program_main(void *arg)
{
	for (;;) {
		int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			continue;
		answer(fd);
		close(fd);
	}
	return NULL;
}

static void begin(struct fuzz_input *in)
{
	size_t first = fuzz_u16(in);

	first = first < in->left ? first : in->left;
	pthread_mutex_lock(&lock);
	answers[0] = (struct fuzz_input){ in->at, first };
	answers[1] = (struct fuzz_input){ in->at + first, in->left - first };
	asked = 0;
	over = false;
	pthread_mutex_unlock(&lock);
}

static void end(void)
{
	pthread_mutex_lock(&lock);
	over = true;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
}

static void await_answers(struct soda_top_target *t)
{
	uint64_t until = soda_now_ns() + PATIENCE_MS * 1000000ull;
	bool both = false;

	while (!both) {
		pthread_mutex_lock(&t->lock);
		both = t->answers >= ANSWERS;
		pthread_mutex_unlock(&t->lock);
		MUST(both || soda_now_ns() < until);
		if (!both)
			usleep(20);
	}
}

/* All of it is within the page, whatever there is to be shown. */
static void look_at(const struct soda_top_canvas *c)
{
	for (int i = 0; i < c->columns * c->rows; i++)
		MUST(c->cells[i].style < SODA_TOP_STYLES && c->cells[i].ch >= ' ');
}

static void draw(struct soda_top_target *t, int columns, int rows, uint8_t how, uint8_t scroll)
{
	struct soda_top_canvas c = { .utf8 = how & 1 };
	struct soda_top_ui ui = { .targets = t,
				  .targets_n = 1,
				  .sort = (enum soda_top_column)(how >> 4) % SODA_TOP_COLUMNS,
				  .reverse = how & 2,
				  .help = how & 4,
				  .scroll = scroll,
				  .interval_ms = 1000 };

	MUST(soda_top_canvas_resize(&c, columns, rows) == 0);
	soda_top_sort(&ui);
	soda_top_draw(&c, &ui);
	look_at(&c);
	soda_top_canvas_clear(&c);
	soda_top_draw_all(&c, &ui);
	look_at(&c);
	soda_top_canvas_free(&c);
}

/* Its output goes nowhere, what the sanitizers have to say does not. */
static void print(void)
{
	char *argv[] = { (char *)(uintptr_t) "stat", self, NULL };
	int out;

	fflush(stdout);
	out = dup(1);
	MUST(out >= 0 && dup2(nowhere, 1) == 1);
	MUST(soda_command_stat(2, argv) == SODA_EXIT_OK);
	MUST(dup2(out, 1) == 1);
	close(out);
}

/* Whether the reader takes it: then it is printed; else only a message is. */
static bool is_object(const struct fuzz_input *text)
{
	json_t *found = json_loadb((const char *)text->at, text->left, 0, NULL);
	bool is = json_is_object(found);

	json_decref(found);
	return is;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	pthread_t program;
	int n;

	setlocale(LC_CTYPE, "C.UTF-8");
	snprintf(self, sizeof(self), "%d", (int)getpid());
	n = snprintf(addr.sun_path + 1, sizeof(addr.sun_path) - 1, "soda/stat/%s", self);
	listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
	MUST(listening >= 0 && nowhere >= 0);
	MUST(bind(listening, (struct sockaddr *)&addr,
		  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0);
	MUST(listen(listening, 16) == 0);
	MUST(pthread_create(&program, NULL, program_main, NULL) == 0);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static const struct soda_top_timing timing = { .timeout_ms = PATIENCE_MS };
	static struct soda_top_target t;
	struct fuzz_input in = { data, bytes };
	int columns = 1 + fuzz_u8(&in), rows = 1 + fuzz_u8(&in);
	uint8_t how = fuzz_u8(&in), scroll = fuzz_u8(&in);
	struct soda_why why;

	begin(&in);
	MUST(soda_top_target_start(&t, self, &timing, &why) == 0);
	await_answers(&t);
	draw(&t, columns, rows, how, scroll);
	end();
	soda_top_target_stop(&t);
	pthread_mutex_lock(&lock);
	asked = 0;
	pthread_mutex_unlock(&lock);
	if (is_object(&answers[0]))
		print();
	return 0;
}
