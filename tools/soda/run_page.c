/* SPDX-License-Identifier: BSD-3-Clause */
#include "run_page.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/conf.h"

enum { PICTURE_MS = 60000, POINTS = 400 };

extern char **environ;

static void put_escaped(FILE *out, const char *s)
{
	for (; *s; s++) {
		if (*s == '<')
			fputs("&lt;", out);
		else if (*s == '>')
			fputs("&gt;", out);
		else if (*s == '&')
			fputs("&amp;", out);
		else
			fputc(*s, out);
	}
}

/* Those that are in order: a program may end while it thins them out. */
static uint32_t in_order(const struct soda_run_samples *samples, struct soda_run_sample *out)
{
	uint32_t n = atomic_load(&samples->n), kept = 0;

	for (uint32_t i = 0; i < n && i < SODA_RUN_SAMPLES; i++)
		if (!kept || samples->samples[i].at_ns > out[kept - 1].at_ns)
			out[kept++] = samples->samples[i];
	return kept;
}

/* Columns: seconds, reserved, resident, buffer in MiB; of the step: faults/s, stalled/s, MiB/s in,
 * out. */
static void put_data(FILE *out, const struct soda_run_sample *s, uint32_t n)
{
	const double mib = 1 << 20;
	uint32_t step = n / POINTS + 1, last = 0, i = 0;

	fputs("$data << END\n", out);
	for (;; last = i, i = n - i > step ? i + step : n - 1) {
		const struct soda_run_sample *a = &s[last], *b = &s[i];
		double secs = i ? (double)(b->at_ns - a->at_ns) / 1e9 : 1;

		fprintf(out, "%.6f %.3f %.3f %.3f %.2f %.4f %.3f %.3f\n", (double)b->at_ns / 1e9,
			(double)b->reserved / mib, (double)b->resident / mib,
			(double)b->buffer / mib, (double)(b->faults - a->faults) / secs,
			(double)(b->stalled_ns - a->stalled_ns) / 1e9 / secs,
			(double)(b->fetched - a->fetched) / mib / secs,
			(double)(b->written - a->written) / mib / secs);
		if (i == n - 1)
			break;
	}
	fputs("END\n", out);
}

static void put_script(FILE *out)
{
	fputs("set terminal svg size 960,900 font 'sans,13' background rgb 'white'\n"
	      "set multiplot layout 4,1\nset grid lc rgb '#dddddd'\n"
	      "set lmargin 12\nset rmargin 22\nset yrange [0:*]\nset xrange [0:*]\n"
	      "set key outside right top\nset style data lines\n"
	      "set ylabel 'MiB'\n"
	      "plot $data using 1:2 title 'reserved' lc rgb '#bbbbbb' lw 2,"
	      " '' using 1:4 title 'page buffer' dt 2 lc rgb '#333333',"
	      " '' using 1:3 title 'resident' lc rgb '#4477aa' lw 2\n"
	      "set ylabel 'faults/s'\n"
	      "plot $data using 1:5 title 'faults' with fsteps lc rgb '#aa3377'\n"
	      "set ylabel 'threads'\n"
	      "plot $data using 1:6 title 'stalled' with fsteps lc rgb '#ee6677'\n"
	      "set ylabel 'MiB/s'\nset xlabel 'seconds'\n"
	      "plot $data using 1:7 title 'fetched' with fsteps lc rgb '#228833',"
	      " '' using 1:8 title 'written' with fsteps lc rgb '#ccbb44'\n"
	      "unset multiplot\n",
	      out);
}

static int start_gnuplot(int in, int out, pid_t *pid_p)
{
	char *const args[] = { (char *)"gnuplot", NULL };
	posix_spawn_file_actions_t actions;
	int ret;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in, 0);
	posix_spawn_file_actions_adddup2(&actions, out, 1);
	ret = posix_spawnp(pid_p, args[0], &actions, NULL, args, environ);
	posix_spawn_file_actions_destroy(&actions);
	return ret;
}

/* true: it ended well, within its time. */
static int await_gnuplot(pid_t pid)
{
	const struct timespec pause = { 0, 10000000 };
	int status;

	for (int ms = 0; waitpid(pid, &status, WNOHANG) == 0; ms += 10) {
		if (ms > PICTURE_MS)
			kill(pid, SIGKILL);
		nanosleep(&pause, NULL);
	}
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* The picture as SVG, for free(); NULL: gnuplot failed. */
static char *draw(const struct soda_run_sample *s, uint32_t n)
{
	int in = memfd_create("script", MFD_CLOEXEC), out = memfd_create("picture", MFD_CLOEXEC);
	FILE *script = in >= 0 ? fdopen(dup(in), "w") : NULL;
	char *svg = NULL;
	off_t bytes;
	pid_t pid;

	if (script) {
		put_data(script, s, n);
		put_script(script);
		fclose(script);
		lseek(in, 0, SEEK_SET);
		if (out >= 0 && !start_gnuplot(in, out, &pid) && await_gnuplot(pid)) {
			bytes = lseek(out, 0, SEEK_END);
			svg = bytes > 0 ? calloc(1, (size_t)bytes + 1) : NULL;
			if (svg && pread(out, svg, (size_t)bytes, 0) != bytes)
				svg[0] = 0;
		}
	}
	if (in >= 0)
		close(in);
	if (out >= 0)
		close(out);
	return svg;
}

static void put_row(FILE *out, const char *name, const char *value)
{
	fprintf(out, "<tr><td>%s<td>%s\n", name, value);
}

static void put_size(FILE *out, const char *name, uint64_t bytes)
{
	char size[16];

	put_row(out, name, soda_format_size(bytes, size));
}

static void put_number(FILE *out, const char *name, const char *format, double value)
{
	char text[64];

	snprintf(text, sizeof(text), format, value);
	put_row(out, name, text);
}

static void put_table(FILE *out, const struct soda_run_sample *s, uint32_t n, int status)
{
	const struct soda_run_sample *end = &s[n - 1];
	uint64_t reserved = 0, resident = 0;

	for (uint32_t i = 0; i < n; i++) {
		reserved = s[i].reserved > reserved ? s[i].reserved : reserved;
		resident = s[i].resident > resident ? s[i].resident : resident;
	}
	fputs("<table>\n", out);
	put_number(out, "exit status", "%.0f", status);
	put_number(out, "time with fabric memory", "%.3f s", (double)end->at_ns / 1e9);
	put_size(out, "reserved, at most", reserved);
	put_size(out, "page buffer, at its end", end->buffer);
	put_size(out, "resident, at most, where it was looked at", resident);
	put_number(out, "faults", "%.0f", (double)end->faults);
	put_number(out, "chunks of zeros, for first touches", "%.0f", (double)end->zero_fills);
	put_size(out, "fetched", end->fetched);
	put_size(out, "written back", end->written);
	put_number(out, "stalled in faults, all threads together", "%.3f s",
		   (double)end->stalled_ns / 1e9);
	fputs("</table>\n", out);
}

static void put_page(FILE *out, char *const *argv, int status, const struct soda_run_sample *s,
		     uint32_t n, const char *svg)
{
	const char *picture = svg ? strstr(svg, "<svg") : NULL;

	fputs("<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n<title>soda "
	      "run</title>\n"
	      "<style>body{font-family:sans-serif;max-width:62em;margin:2em auto}"
	      "td{padding:.1em 1em .1em 0}td+td{text-align:right}</style>\n<h1>soda run</h1>\n"
	      "<pre>",
	      out);
	for (int i = 0; argv[i]; i++) {
		fputs(i ? " " : "", out);
		put_escaped(out, argv[i]);
	}
	fputs("</pre>\n", out);
	if (n)
		put_table(out, s, n, status);
	else
		fprintf(out, "<p>Exit status %d. The program used no fabric memory.\n", status);
	if (picture)
		fprintf(out,
			"%s\n<p>Stalled: how many threads were waiting in a fault, on average.\n",
			picture);
	else if (n)
		fputs("<p>gnuplot failed: there is no picture.\n", out);
	fputs("</html>\n", out);
}

int soda_run_page_write(const char *path, char *const *argv, int status,
			const struct soda_run_samples *samples)
{
	static struct soda_run_sample s[SODA_RUN_SAMPLES];
	uint32_t n = in_order(samples, s);
	char *svg = n ? draw(s, n) : NULL;
	FILE *out = fopen(path, "w");
	int bad = !out;

	if (n && !svg)
		fprintf(stderr, "soda run: --report %s: gnuplot failed: there is no picture\n",
			path);
	if (out) {
		put_page(out, argv, status, s, n, svg);
		bad = ferror(out);
		bad |= fclose(out);
	}
	free(svg);
	if (bad)
		fprintf(stderr, "soda run: --report %s: %s\n", path, strerror(errno));
	return bad ? -1 : 0;
}
