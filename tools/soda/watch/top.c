/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda top`: what programs, agents and servers do now, live or as one page of text. */
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "soda/base/tool.h"
#include "soda/watch/frame.h"

struct options {
	uint32_t interval_ms, timeout_ms;
	bool once, all;
};

static const struct soda_option option_table[] = {
	OPTION("interval", 'i', TIME_MS, interval_ms, .arg = "TIME", .def = "1s", .min = 50,
	       .max = 3600000, .help = "Time between two looks; rates are averages over it."),
	OPTION("timeout", 0, TIME_MS, timeout_ms, .arg = "TIME", .def = "2s", .min = 10,
	       .max = 3600000,
	       .help = "Longest wait for an answer; then the target is shown as gone."),
	OPTION("once", '1', BOOL, once,
	       .help = "Look twice, print one page of text and end: needs no terminal. As wide as "
		       "COLUMNS says, or 80. Groups whose values are all 0 are named only."),
	OPTION("all", 'a', BOOL, all, .help = "With --once, show these groups, too."),
};

static const struct soda_conf conf = {
	.program = "soda top",
	.summary = "watch programs, agents and servers live",
	.args = "[PID|ADDRESS]...",
	.description = "Shows rates, ratios, latencies and graphs over time of each target: PID is "
		       "a running program that uses SODA, ADDRESS a memory server or DPU agent "
		       "(tcp://HOST:PORT, shm://PATH). Without targets: all programs of this "
		       "machine that use SODA, and what SODA_SERVER and SODA_DPU name.\n\n"
		       "The table has a line for each target, the page below it the details of "
		       "one; '?' explains each line. A target that does not answer is shown as "
		       "gone and asked again each time. Times of memory servers and agents are of "
		       "the last interval, those of programs since their start.",
	.epilogue = ".SH KEYS\n"
		    ".TP\n.B q\nleave\n"
		    ".TP\n.B s\nsort by the next column\n"
		    ".TP\n.B r\nreverse the order\n"
		    ".TP\n.BR p \", \" space\nhold what is shown, and go on\n"
		    ".TP\n.BR up \", \" down\nselect the target whose details are shown\n"
		    ".TP\n.BR PgUp \", \" PgDn \", \" b \", \" f\nscroll the details\n"
		    ".TP\n.BR ? \", \" h\nwhat each line means\n"
		    ".SH ENVIRONMENT\n"
		    ".TP\n.B NO_COLOR\nset to anything: no colours\n"
		    ".TP\n.BR SODA_SERVER \", \" SODA_DPU\naddresses to look at where no target is"
		    " named\n"
		    ".SH EXIT STATUS\n0; 1 if no terminal is there to be used, nothing was found to"
		    " look at, or\n.B \\-\\-once\ngot no answer; 2 for wrong usage.\n"
		    ".SH SEE ALSO\n.BR soda\\-stat (1),\n.BR soda\\-mem\\-server (1)\n",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

static struct soda_top_target targets[SODA_TOP_TARGETS_MAX];

/* Wait until each target has answered twice, or has failed to. */
static void await_answers(struct soda_top_ui *ui)
{
	for (int i = 0; i < ui->targets_n; i++) {
		struct soda_top_target *t = &ui->targets[i];
		bool done = false;

		while (!done) {
			usleep(10000);
			pthread_mutex_lock(&t->lock);
			done = t->answers >= 2 || t->state == SODA_TOP_GONE;
			pthread_mutex_unlock(&t->lock);
		}
	}
}

static int count_here(struct soda_top_ui *ui)
{
	int here = 0;

	for (int i = 0; i < ui->targets_n; i++) {
		pthread_mutex_lock(&ui->targets[i].lock);
		here += ui->targets[i].state == SODA_TOP_HERE;
		pthread_mutex_unlock(&ui->targets[i].lock);
	}
	return here;
}

static int page_width(void)
{
	const char *text = getenv("COLUMNS");
	int columns = text ? atoi(text) : 80;

	return columns < 80 ? 80 : columns > 500 ? 500 : columns;
}

static int print_once(struct soda_top_ui *ui, bool utf8, bool all)
{
	enum { ROWS_EACH = SODA_TOP_ROWS_MAX + 1024 + 8 };
	struct soda_top_canvas page = { .utf8 = utf8, .once = true, .brief = !all };

	await_answers(ui);
	if (soda_top_canvas_resize(&page, page_width(), 4 + ui->targets_n * ROWS_EACH)) {
		fprintf(stderr, "soda top: %s\n", strerror(ENOMEM));
		return SODA_EXIT_FAILED;
	}
	ui->selected = -1;
	soda_top_draw_all(&page, ui);
	soda_top_canvas_print(&page, stdout);
	soda_top_canvas_free(&page);
	return fflush(stdout) || !count_here(ui) ? SODA_EXIT_FAILED : SODA_EXIT_OK;
}

static int watch(struct soda_top_ui *ui, bool utf8)
{
	int r = soda_top_screen_run(ui, utf8);

	if (r == -ENOTTY)
		fprintf(stderr, "soda top: this is no terminal that can be used: for a page of text"
				" give --once\n");
	else if (r == -ENOTSUP)
		fprintf(stderr,
			"soda top: built without ncurses: for a page of text give --once\n");
	else if (r)
		fprintf(stderr, "soda top: %s\n", strerror(-r));
	return r ? SODA_EXIT_FAILED : SODA_EXIT_OK;
}

/* Start the targets' threads, with signals blocked: the thread that has the screen gets them. */
static int start(struct soda_top_ui *ui, const char *const *names, int n,
		 const struct soda_top_timing *timing)
{
	struct soda_why why = { "" };
	sigset_t all, before;
	int r = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	while (!r && ui->targets_n < n) {
		r = soda_top_target_start(&targets[ui->targets_n], names[ui->targets_n], timing,
					  &why);
		if (!r)
			ui->targets_n++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r)
		fprintf(stderr, "soda top: %s\n", *why.text ? why.text : strerror(-r));
	return r;
}

static int look(const struct options *opt, const char *const *names, int n)
{
	const struct soda_top_timing timing = { opt->interval_ms, opt->timeout_ms };
	struct soda_top_ui ui = { .targets = targets,
				  .sort = SODA_TOP_BY_OPS,
				  .interval_ms = opt->interval_ms };
	bool utf8;
	int r;

	setlocale(LC_CTYPE, "");
	utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
	signal(SIGPIPE, SIG_IGN);
	r = start(&ui, names, n, &timing);
	if (r)
		r = r == -EINVAL ? SODA_EXIT_USAGE : SODA_EXIT_FAILED;
	else
		r = opt->once ? print_once(&ui, utf8, opt->all) : watch(&ui, utf8);
	for (int i = 0; i < ui.targets_n; i++)
		soda_top_target_stop(&targets[i]);
	return r;
}

int soda_command_top(int argc, char **argv)
{
	const char *names[SODA_TOP_TARGETS_MAX];
	char *found[SODA_TOP_TARGETS_MAX];
	struct options opt = { 0 };
	int n = soda_tool_options(&conf, argc, argv, &opt, names, SODA_TOP_TARGETS_MAX),
	    found_n = 0;
	int r;

	if (n < 0)
		return SODA_EXIT_USAGE;
	if (n == 0) {
		n = found_n = soda_top_find(found, SODA_TOP_TARGETS_MAX);
		memcpy(names, found, sizeof(found[0]) * (size_t)n);
	}
	if (n == 0) {
		fprintf(stderr, "soda top: nothing to look at: no program here uses SODA yet; start"
				" one (soda run -- PROGRAM), or name a process id or a server"
				" (tcp://HOST:7001)\n");
		return SODA_EXIT_FAILED;
	}
	r = look(&opt, names, n);
	while (found_n)
		free(found[--found_n]);
	return r;
}
